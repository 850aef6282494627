//! The attribute macro of lens.
//!
//! It reads tokens with `proc_macro` alone, so that a library that is instrumented pays for no parser. Its feature
//! `enable` is that of `lens`: without it a traced function is the function as it was written.

use proc_macro::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// Opens a span around every call of a function.
///
/// `#[trace_fn(group = GROUP, name = "…")]` works on synchronous and asynchronous functions; the name defaults to
/// the function's. Whether the group is on is decided at each call. An `Err` is recorded (type and `Display`)
/// and sets the status ERROR; other values pass unchanged.
#[proc_macro_attribute]
pub fn trace_fn(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match expand(arguments, item.clone()) {
        Ok(tokens) => tokens,
        Err(message) => {
            let mut tokens = parse(&format!("::core::compile_error!({message:?});"));
            tokens.extend(item);
            tokens
        }
    }
}

fn parse(text: &str) -> TokenStream {
    text.parse().unwrap_or_else(|_| TokenStream::new())
}

struct Arguments {
    group: TokenStream,
    name: Option<TokenStream>,
}

fn read_arguments(arguments: TokenStream) -> Result<Arguments, String> {
    let (mut group, mut name) = (None, None);
    let mut tokens = arguments.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let TokenTree::Ident(key) = token else {
            return Err(format!("expected `group = …` or `name = …`, found `{token}`"));
        };
        match tokens.next() {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => {}
            _ => return Err(format!("expected `=` after `{key}`")),
        }
        let mut value = TokenStream::new();
        for token in tokens.by_ref() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ',' => break,
                other => value.extend([other]),
            }
        }
        if value.is_empty() {
            return Err(format!("expected a value after `{key} =`"));
        }
        match key.to_string().as_str() {
            "group" => group = Some(value),
            "name" => name = Some(value),
            other => return Err(format!("unknown argument `{other}`: expected `group` or `name`")),
        }
    }
    let group = group.ok_or("trace_fn needs `group = …`")?;
    Ok(Arguments { group, name })
}

struct Function {
    /// Everything before the body.
    head: TokenStream,
    name: String,
    is_async: bool,
    /// The return type when it can be written inside the body.
    output: Option<TokenStream>,
    body: Group,
}

fn read_function(item: TokenStream) -> Result<Function, String> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let body = match tokens.pop() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => group,
        _ => return Err("trace_fn needs a function with a body".to_owned()),
    };
    let is_ident = |token: &TokenTree, name: &str| matches!(token, TokenTree::Ident(ident) if ident.to_string() == name);
    let keyword = tokens
        .iter()
        .position(|token| is_ident(token, "fn"))
        .ok_or("trace_fn applies to functions only")?;
    if tokens[..keyword].iter().any(|token| is_ident(token, "const")) {
        return Err("trace_fn cannot trace a const fn".to_owned());
    }
    let is_async = tokens[..keyword].iter().any(|token| is_ident(token, "async"));
    let name = match tokens.get(keyword + 1) {
        Some(TokenTree::Ident(ident)) => ident.to_string().trim_start_matches("r#").to_owned(),
        _ => return Err("expected a name after `fn`".to_owned()),
    };
    let parameters = find_parameters(&tokens, keyword + 2).ok_or("expected parameters")?;
    let output = find_output(&tokens[parameters + 1..]);
    Ok(Function { head: tokens.into_iter().collect(), name, is_async, output, body })
}

/// The parenthesised parameters, behind the generics.
fn find_parameters(tokens: &[TokenTree], from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    let mut arrow = false;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token {
            TokenTree::Punct(punct) => {
                match punct.as_char() {
                    '<' => depth += 1,
                    '>' if !arrow => depth -= 1,
                    _ => {}
                }
                arrow = punct.as_char() == '-' && punct.spacing() == Spacing::Joint;
            }
            TokenTree::Group(group)
                if depth == 0 && group.delimiter() == Delimiter::Parenthesis =>
            {
                return Some(at);
            }
            _ => arrow = false,
        }
    }
    None
}

/// The type behind `->`, unless it mentions `impl`, which cannot be written inside a body, or is `!`.
fn find_output(tokens: &[TokenTree]) -> Option<TokenStream> {
    let is_punct = |token: Option<&TokenTree>, wanted: char| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
    if !(is_punct(tokens.first(), '-') && is_punct(tokens.get(1), '>')) {
        return None;
    }
    let output: Vec<TokenTree> = tokens[2..]
        .iter()
        .take_while(
            |token| !matches!(token, TokenTree::Ident(ident) if ident.to_string() == "where"),
        )
        .cloned()
        .collect();
    let never = output.len() == 1 && is_punct(output.first(), '!');
    let output: TokenStream = output.into_iter().collect();
    (!never && !mentions_impl(output.clone())).then_some(output)
}

fn mentions_impl(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident.to_string() == "impl",
        TokenTree::Group(group) => mentions_impl(group.stream()),
        _ => false,
    })
}

fn braced(tokens: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(Delimiter::Brace, tokens))
}

fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream, String> {
    let arguments = read_arguments(arguments)?;
    let function = read_function(item)?;
    let name = arguments.name.unwrap_or_else(|| parse(&format!("{:?}", function.name)));

    let mut body = TokenStream::new();
    if !cfg!(feature = "enable") {
        // Any wrapper would stay in the states of an asynchronous function, so there is none; the group counts as
        // used all the same.
        body.extend(parse("let _: &'static ::lens::Group = &"));
        body.extend(arguments.group);
        body.extend(parse(";"));
        body.extend([TokenTree::Group(function.body)]);
        let mut tokens = function.head;
        tokens.extend([braced(body)]);
        return Ok(tokens);
    }
    if function.is_async {
        let mut inner = TokenStream::new();
        if let Some(output) = function.output {
            // Never runs: tells the compiler the type that `?` and `into()` inside the body aim at.
            inner.extend(parse("#[allow(unreachable_code, clippy::diverging_sub_expression, clippy::empty_loop)] if false"));
            let mut hint = parse("let lens_output:");
            hint.extend(output);
            hint.extend(parse("= loop {}; return lens_output;"));
            inner.extend([braced(hint)]);
        }
        inner.extend([TokenTree::Group(function.body)]);
        body.extend(parse("::lens::__private::trace_future"));
        let mut call = parse("&");
        call.extend(arguments.group);
        call.extend(parse(","));
        call.extend(name);
        call.extend(parse(", async move"));
        call.extend([braced(inner)]);
        call.extend(parse(
            ", |lens_span, lens_value| { ::lens::__record_outcome!(*lens_span, *lens_value); }",
        ));
        body.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, call))]);
        body.extend(parse(".await"));
    } else {
        body.extend(parse(
            "#[allow(unused_mut)] let mut lens_guard = ::lens::__private::function_guard",
        ));
        let mut call = parse("&");
        call.extend(arguments.group);
        call.extend(parse(","));
        call.extend(name);
        body.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, call))]);
        body.extend(parse(
            "; #[allow(clippy::let_unit_value)] let lens_value = ::lens::__private::call",
        ));
        let mut closure = parse("move ||");
        if let Some(output) = function.output {
            closure.extend(parse("->"));
            closure.extend(output);
        }
        closure.extend([TokenTree::Group(function.body)]);
        body.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, closure))]);
        body.extend(parse(
            "; ::lens::__record_outcome!(lens_guard, lens_value); ::core::mem::drop(lens_guard); lens_value",
        ));
    }
    let mut tokens = function.head;
    tokens.extend([braced(body)]);
    Ok(tokens)
}
