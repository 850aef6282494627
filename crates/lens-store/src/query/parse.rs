//! Reads a query. Nesting is bounded, so what recurses here and later does so a few dozen times at most.

mod fields;
mod steps;

use super::ast::{Condition, Field, Op, Pair, Query, Spanset, Test};
use super::error::{Problem, QueryError};
use super::lex::{Token, tokens};
use super::value::Literal;
use fields::{constant, test};

/// Longest query, in bytes.
const MAX_BYTES: usize = 16 << 10;
/// Deepest nesting of parentheses and `!`.
const MAX_DEPTH: usize = 32;
/// Operators between sets of spans.
const MAX_PAIRS: usize = 32;
/// Conditions.
const MAX_CONDITIONS: usize = 256;

type Result<T> = std::result::Result<T, QueryError>;

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or asks for what is not supported; the error says what and where.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_BYTES {
            return Err(QueryError { at: 0, problem: Problem::TooMuch("16 KiB") });
        }
        Parser { tokens: tokens(text)?, at: 0, depth: 0, pairs: 0, conditions: 0 }.query()
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    depth: usize,
    pairs: usize,
    conditions: usize,
}

/// One side of a comparison.
enum Operand {
    Field(Field),
    Literal(Literal),
    Nil,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(_, token)| token)
    }

    fn place(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |(at, _)| *at)
    }

    fn error<T>(&self, problem: Problem) -> Result<T> {
        Err(QueryError { at: self.place(), problem })
    }

    fn unsupported<T>(&self, what: impl Into<String>) -> Result<T> {
        self.error(Problem::Unsupported(what.into()))
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T> {
        self.error(Problem::Unexpected { expected, found: self.peek().shown() })
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let is = self.is(symbol);
        self.at += usize::from(is);
        is
    }

    fn want(&mut self, symbol: &str, expected: &'static str) -> Result<()> {
        if self.take(symbol) { Ok(()) } else { self.expected(expected) }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return self.error(Problem::TooMuch("32 parentheses inside each other"));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn query(mut self) -> Result<Query> {
        let mut query = Query { spans: self.spanset()?, stages: Vec::new(), metric: None };
        while self.take("|") {
            if query.metric.is_some() {
                return self.unsupported("a step behind a metric");
            }
            self.stage(&mut query)?;
        }
        match self.peek() {
            Token::End => Ok(query),
            Token::Word(word) if word == "with" => self.unsupported("`with`"),
            _ => self.expected("`|` or the end"),
        }
    }

    /// `&&` and `||` of sets, and what binds more tightly.
    fn spanset(&mut self) -> Result<Spanset> {
        let mut set = self.related()?;
        let mut had_either = false;
        loop {
            let pair = match self.peek() {
                Token::Symbol("&&") if had_either => return self.error(Problem::Ambiguous),
                Token::Symbol("&&") => Pair::Both,
                Token::Symbol("||") => Pair::Either,
                _ => return Ok(set),
            };
            had_either |= pair == Pair::Either;
            set = self.pair(set, pair, Self::related)?;
        }
    }

    /// `>`, `>>` and so on.
    fn related(&mut self) -> Result<Spanset> {
        let mut set = self.one_set()?;
        loop {
            let pair = match self.peek() {
                Token::Symbol(">") => Pair::Child,
                Token::Symbol(">>") => Pair::Descendant,
                Token::Symbol("<") => Pair::Parent,
                Token::Symbol("<<") => Pair::Ancestor,
                Token::Symbol("~") => Pair::Sibling,
                Token::Symbol(symbol) if symbol.starts_with('!') || symbol.starts_with('&') => {
                    if *symbol == "&&" {
                        return Ok(set);
                    }
                    return self.unsupported(format!("`{symbol}` between sets of spans"));
                }
                _ => return Ok(set),
            };
            set = self.pair(set, pair, Self::one_set)?;
        }
    }

    fn pair(
        &mut self,
        left: Spanset,
        pair: Pair,
        right: impl FnOnce(&mut Self) -> Result<Spanset>,
    ) -> Result<Spanset> {
        self.pairs += 1;
        if self.pairs > MAX_PAIRS {
            return self.error(Problem::TooMuch("32 operators between sets of spans"));
        }
        self.at += 1;
        Ok(Spanset::Pair(pair, Box::new((left, right(self)?))))
    }

    fn one_set(&mut self) -> Result<Spanset> {
        if self.take("(") {
            let set = self.deeper(Self::spanset)?;
            if self.is("|") {
                return self.unsupported("a pipeline in parentheses");
            }
            self.want(")", "`)`")?;
            return Ok(set);
        }
        if !self.is("{") {
            return self.expected("`{`");
        }
        Ok(Spanset::Filter(self.filter()?))
    }

    fn filter(&mut self) -> Result<Option<Condition>> {
        self.want("{", "`{`")?;
        if self.take("}") {
            return Ok(None);
        }
        let condition = self.condition()?;
        self.want("}", "`&&`, `||` or `}`")?;
        Ok(Some(condition))
    }

    fn condition(&mut self) -> Result<Condition> {
        let mut left = self.single()?;
        let mut had_either = false;
        loop {
            if self.is("&&") {
                if had_either {
                    return self.error(Problem::Ambiguous);
                }
                self.at += 1;
                let right = self.single()?;
                left = match left {
                    Condition::All(mut parts) => {
                        parts.push(right);
                        Condition::All(parts)
                    }
                    left => Condition::All(vec![left, right]),
                };
            } else if self.take("||") {
                let right = self.single()?;
                left = match left {
                    Condition::Any(mut parts) if had_either => {
                        parts.push(right);
                        Condition::Any(parts)
                    }
                    left => Condition::Any(vec![left, right]),
                };
                had_either = true;
            } else {
                return Ok(left);
            }
        }
    }

    fn single(&mut self) -> Result<Condition> {
        self.conditions += 1;
        if self.conditions > MAX_CONDITIONS {
            return self.error(Problem::TooMuch("256 conditions"));
        }
        if self.take("!") {
            let negated = self.deeper(Self::negated)?;
            return Ok(Condition::Not(Box::new(negated)));
        }
        if self.take("(") {
            let condition = self.deeper(Self::condition)?;
            self.want(")", "`&&`, `||` or `)`")?;
            if let Condition::All(_) = condition {
                // Not to be taken for a chain that goes on.
                return Ok(Condition::All(vec![condition]));
            }
            return Ok(condition);
        }
        self.comparison()
    }

    /// What is behind `!`: it would bind more tightly than a comparison.
    fn negated(&mut self) -> Result<Condition> {
        if self.is("(") || self.is("!") {
            return self.single();
        }
        let field = match self.operand()? {
            Operand::Field(field) => field,
            Operand::Literal(Literal::Bool(value)) => return Ok(Condition::Always(value)),
            _ => return self.expected("a condition in parentheses behind `!`"),
        };
        if self.operator().is_some() {
            return self.expected("the comparison behind `!` in parentheses");
        }
        self.flag(field)
    }

    /// A field by itself.
    fn flag(&self, field: Field) -> Result<Condition> {
        if !matches!(field, Field::Attribute(..)) {
            return self.expected("a comparison");
        }
        Ok(Condition::Compare(field, Test::Value(Op::Equal, Literal::Bool(true))))
    }

    fn comparison(&mut self) -> Result<Condition> {
        let left_at = self.place();
        let left = self.operand()?;
        let Some(operator) = self.operator() else {
            if let Token::Symbol("+" | "-" | "*" | "/") = self.peek() {
                return self.unsupported("arithmetic");
            }
            return match left {
                Operand::Field(field) => self.flag(field),
                Operand::Literal(Literal::Bool(value)) => Ok(Condition::Always(value)),
                _ => self.expected("a comparison"),
            };
        };
        self.at += 1;
        let right_at = self.place();
        let right = self.operand()?;
        if let Token::Symbol("+" | "-" | "*" | "/") = self.peek() {
            return self.unsupported("arithmetic");
        }
        let (field, literal, operator, at) = match (left, right) {
            (Operand::Field(field), Operand::Nil) => {
                return match operator {
                    "=" => Ok(Condition::Exists(field, false)),
                    "!=" => Ok(Condition::Exists(field, true)),
                    _ => self.unsupported(format!("`{operator} nil`")),
                };
            }
            (Operand::Field(field), Operand::Literal(literal)) => {
                (field, literal, operator, right_at)
            }
            (Operand::Literal(literal), Operand::Field(field)) => {
                let turned = match operator {
                    ">" => "<",
                    ">=" => "<=",
                    "<" => ">",
                    "<=" => ">=",
                    "=~" | "!~" => return self.unsupported("a pattern before its field"),
                    same => same,
                };
                (field, literal, turned, left_at)
            }
            (Operand::Field(_), Operand::Field(_)) => {
                return self.unsupported("comparing two fields");
            }
            _ => return self.unsupported("comparing two values"),
        };
        match test(&field, operator, literal) {
            Ok(test) => Ok(Condition::Compare(field, test)),
            Err(problem) => Err(QueryError { at, problem }),
        }
    }

    fn operator(&self) -> Option<&'static str> {
        match self.peek() {
            Token::Symbol(symbol @ ("=" | "!=" | ">" | ">=" | "<" | "<=" | "=~" | "!~")) => {
                Some(symbol)
            }
            _ => None,
        }
    }

    fn operand(&mut self) -> Result<Operand> {
        if self.is("-") {
            self.at += 1;
            let literal = match self.peek() {
                Token::Int(number) => Literal::Int(-number),
                Token::Float(number) => Literal::Float(-number),
                Token::Duration(nanos) => Literal::Int(-nanos),
                Token::Word(_) => return self.unsupported("arithmetic"),
                _ => return self.expected("a number behind `-`"),
            };
            self.at += 1;
            return Ok(Operand::Literal(literal));
        }
        let operand = match self.peek() {
            Token::Text(text) => Operand::Literal(Literal::Text(text.as_str().into())),
            Token::Int(number) => Operand::Literal(Literal::Int(*number)),
            Token::Float(number) => Operand::Literal(Literal::Float(*number)),
            Token::Duration(nanos) => Operand::Literal(Literal::Int(*nanos)),
            Token::Word(word) => match constant(word) {
                Some(operand) => operand,
                None => Operand::Field(self.field_named(word)?),
            },
            Token::Symbol("+" | "*" | "/") => return self.unsupported("arithmetic"),
            _ => return self.expected("a field or a value"),
        };
        self.at += 1;
        Ok(operand)
    }

    fn field(&mut self) -> Result<Field> {
        let field = match self.peek() {
            Token::Word(word) => self.field_named(word)?,
            _ => return self.expected("a field"),
        };
        self.at += 1;
        Ok(field)
    }
}
