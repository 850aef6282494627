//! Reads the steps behind `|`.

use super::{Operand, Parser, Result};
use crate::query::ast::{Aggregate, Field, Function, Metric, Op, Query, Stage};
use crate::query::lex::Token;

impl Parser {
    pub(super) fn stage(&mut self, query: &mut Query) -> Result<()> {
        if self.is("{") {
            query.stages.push(Stage::Filter(self.filter()?));
            return Ok(());
        }
        let Token::Word(word) = self.peek().clone() else { return self.expected("a step") };
        let is_known = matches!(
            word.as_str(),
            "count" | "avg" | "min" | "max" | "sum" | "by" | "select" | "rate"
        ) || word.ends_with("_over_time") && word != "histogram_over_time";
        if !is_known {
            return match word.as_str() {
                "coalesce" | "compare" | "topk" | "bottomk" | "histogram_over_time" => {
                    self.unsupported(format!("`{word}`"))
                }
                _ => self.expected("a step: count, avg, by, select, rate, quantile_over_time, …"),
            };
        }
        let word_at = self.at;
        self.at += 1;
        self.want("(", "`(`")?;
        match word.as_str() {
            "by" => {
                let fields = self.fields()?;
                query.stages.extend(fields.into_iter().map(Stage::By));
            }
            "select" => {
                let fields = self.fields()?;
                query.stages.push(Stage::Select(fields));
            }
            "count" | "avg" | "min" | "max" | "sum" => {
                let aggregate = self.aggregate(&word)?;
                query.stages.push(aggregate);
            }
            name => {
                let Some(function) = self.function(name)? else {
                    self.at = word_at;
                    return self.unsupported(format!("`{name}`"));
                };
                query.metric = Some(Metric { function, by: self.grouped()? });
            }
        }
        Ok(())
    }

    /// Fields up to `)`.
    fn fields(&mut self) -> Result<Vec<Field>> {
        let mut fields = vec![self.field()?];
        while self.take(",") {
            fields.push(self.field()?);
        }
        self.want(")", "`,` or `)`")?;
        Ok(fields)
    }

    fn aggregate(&mut self, name: &str) -> Result<Stage> {
        let aggregate = if name == "count" {
            Aggregate::Count
        } else {
            let field = self.field()?;
            match name {
                "avg" => Aggregate::Average(field),
                "sum" => Aggregate::Sum(field),
                "min" => Aggregate::Min(field),
                _ => Aggregate::Max(field),
            }
        };
        self.want(")", "`)`")?;
        let Some(op) = self.operator().and_then(Op::from_symbol) else {
            return self.expected("a comparison with a number");
        };
        self.at += 1;
        Ok(Stage::Aggregate(aggregate, op, self.number()?))
    }

    fn number(&mut self) -> Result<f64> {
        match self.operand()? {
            Operand::Literal(literal) if literal.number().is_some() => {
                Ok(literal.number().unwrap_or_default())
            }
            _ => {
                self.at -= 1;
                self.expected("a number")
            }
        }
    }

    fn function(&mut self, name: &str) -> Result<Option<Function>> {
        let function = match name {
            "rate" => Function::Rate,
            "count_over_time" => Function::Count,
            "sum_over_time" => Function::Sum(self.field()?),
            "avg_over_time" => Function::Average(self.field()?),
            "min_over_time" => Function::Min(self.field()?),
            "max_over_time" => Function::Max(self.field()?),
            "quantile_over_time" => {
                let field = self.field()?;
                let mut quantiles = Vec::new();
                while self.take(",") {
                    let quantile = self.number()?;
                    if !(0.0..=1.0).contains(&quantile) {
                        self.at -= 1;
                        return self.expected("a share from 0 to 1");
                    }
                    quantiles.push(quantile);
                }
                if quantiles.is_empty() {
                    return self.expected("`,` and a share from 0 to 1");
                }
                Function::Quantile(field, quantiles)
            }
            _ => return Ok(None),
        };
        self.want(")", "`)`")?;
        Ok(Some(function))
    }

    fn grouped(&mut self) -> Result<Vec<Field>> {
        match self.peek() {
            Token::Word(word) if word == "by" => {
                self.at += 1;
                self.want("(", "`(`")?;
                self.fields()
            }
            _ => Ok(Vec::new()),
        }
    }
}
