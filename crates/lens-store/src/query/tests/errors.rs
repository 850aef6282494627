use proptest::prelude::*;

use crate::query::Query;

fn error(query: &str) -> String {
    match Query::parse(query) {
        Ok(_) => format!("{query} was read"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    for (query, wanted) in [
        ("", "expected `{`, found the end at character 1"),
        ("name = 1", "expected `{`, found `name` at character 1"),
        ("{", "expected a field or a value, found the end at character 2"),
        ("{ name = }", "expected a field or a value, found `}` at character 10"),
        ("{ name = \"a\" ", "expected `&&`, `||` or `}`, found the end at character 14"),
        ("{ name = \"a }", "the text that begins here has no end at character 10"),
        ("{ name = \"a\\q\" }", "\\q is no escape at character 12"),
        ("{ duration > 5x }", "5x is no number at character 14"),
        (
            "{ http.route = \"/x\" }",
            "expected a field (an attribute is `.key` or `span.key`), found `http.route` \
             at character 3",
        ),
        ("{ name = error }", "name is compared with a text at character 10"),
        (
            "{ status = \"error\" }",
            "status is compared with `=` or `!=` with ok, error or unset at character 12",
        ),
        (
            "{ kind > server }",
            "kind is compared with `=` or `!=` with server, client, internal, producer or \
             consumer at character 10",
        ),
        ("{ duration = \"x\" }", "duration is compared with a duration, as 250ms at character 14"),
        ("{ trace:id = \"xyz\" }", "trace:id is compared with an id in hex digits at character 14"),
        ("{ .x =~ 5 }", ".x is compared with a pattern in quotes at character 9"),
        ("{ name }", "expected a comparison, found `}` at character 8"),
        (
            "{ !.x = 1 }",
            "expected the comparison behind `!` in parentheses, found `=` at character 7",
        ),
        ("{ .a } extra", "expected `|` or the end, found `extra` at character 8"),
        ("{ .a } | count()", "expected a comparison with a number, found the end at character 17"),
        (
            "{ .a } | quantile_over_time(duration, 99)",
            "expected a share from 0 to 1, found a number at character 39",
        ),
        ("{ .a = 1 ; }", "expected a query, found `;` at character 10"),
    ] {
        assert_eq!(error(query), wanted, "{query}");
    }
    assert!(error("{ name =~ \"(\" }").starts_with("the pattern cannot be read: "));
}

#[test]
fn what_traceql_has_and_this_does_not_is_named() {
    for (query, what) in [
        ("{ .a + 1 > 2 }", "arithmetic"),
        ("{ .a > 2 * 3 }", "arithmetic"),
        ("{ .a % 2 = 0 }", "arithmetic (`%`)"),
        ("{ .a = .b }", "comparing two fields"),
        ("{ 1 = 1 }", "comparing two values"),
        ("{ parent.x = 1 }", "`parent.`"),
        ("{ link.x = 1 }", "`link.`"),
        ("{ childCount > 2 }", "`childCount`"),
        ("{ event:timeSinceStart > 1s }", "`event:timeSinceStart`"),
        ("{ .a } !>> { .b }", "`!>>` between sets of spans"),
        ("{ .a } &> { .b }", "`&>` between sets of spans"),
        ("({ .a } | count() > 1) && { .b }", "a pipeline in parentheses"),
        ("{ .a } | coalesce()", "`coalesce`"),
        ("{ .a } | compare({ .b })", "`compare`"),
        ("{ .a } | rate() | topk(3)", "a step behind a metric"),
        ("{ .a } | histogram_over_time(duration)", "`histogram_over_time`"),
        ("{ .a } | rate() with (sample=true)", "`with`"),
        ("{ .a > nil }", "`> nil`"),
    ] {
        let error = error(query);
        assert!(error.starts_with(&format!("{what} is not supported at ")), "{query}: {error}");
    }
    let mixed = "`&&` behind `||` is read one way here and another way there: put parentheses";
    assert_eq!(error("{ .a || .b && .c }"), format!("{mixed} at character 12"));
    assert_eq!(error("{} || {} && {}"), format!("{mixed} at character 10"));
    assert!(Query::parse("{ .a && .b || !.c }").is_ok());
    assert!(Query::parse("{ (.a || .b) && (.c || .d) }").is_ok());
}

#[test]
fn an_error_is_shown_below_its_place() {
    let query = "{ name = \"µ\" }\n  | cuont() > 2";
    let error = Query::parse(query).unwrap_err();
    let shown = error.render(query);
    let lines: Vec<&str> = shown.lines().skip(1).collect();
    assert_eq!(lines, ["    | cuont() > 2", "      ^"]);
    assert_eq!(Query::parse("{").unwrap_err().render("{").lines().last(), Some("   ^"));
}

#[test]
fn size_and_nesting_are_bounded() {
    let deep = format!("{{ {}.a{} }}", "(".repeat(500), ")".repeat(500));
    assert_eq!(
        error(&deep),
        "a query has at most 32 parentheses inside each other at character 36"
    );
    assert!(error(&format!("{{ {}(.a) }}", "!".repeat(5000))).contains("at most 32"));
    assert!(error(&format!("{}{{}}{}", "(".repeat(99), ")".repeat(99))).contains("at most 32"));
    let wide = format!("{{ .a {} }}", "&& .a ".repeat(300));
    assert!(error(&wide).contains("at most 256 conditions"));
    let sets = format!("{{}} {}", "|| {} ".repeat(40));
    assert!(error(&sets).contains("at most 32 operators"));
    assert!(error(&" ".repeat(20_000)).contains("at most 16 KiB"));
    assert!(error(&format!("{{ .a =~ \"{}\" }}", "(a{1000}){1000}")).contains("pattern"));
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader(text in "\\PC{0,60}") {
        if let Err(error) = Query::parse(&text) {
            error.render(&text);
        }
    }

    #[test]
    fn no_order_of_pieces_breaks_the_reader(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "(", ")", "|", "&&", "||", "!", "=", "!=", ">", ">>", "=~", "~", "-", ",",
            ".a", "span.b", "name", "duration", "status", "kind", "error", "server", "nil",
            "true", "1", "2.5", "10ms", "\"x\"", "`y`", "\"", "count", "avg", "by", "rate",
            "select", "quantile_over_time", "trace:id", "\n", "µ",
        ]), 0..24),
    ) {
        let text = pieces.join(" ");
        if let Err(error) = Query::parse(&text) {
            error.render(&text);
        }
        let _ = Query::parse(&pieces.concat());
    }
}
