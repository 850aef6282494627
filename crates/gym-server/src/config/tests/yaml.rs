use serde_json::json;

use crate::config::yaml::parse;

#[test]
fn anchors_merge_keys_tags_and_quotes() {
    let text = "
base: &base {a: 1, b: 2}
more: &more {b: 3, c: 3}
own: {<<: *base, b: 4}
both:
  <<: [*base, *more]
  d: 5
quoted: ['yes', \"1\", '~', 'a''b', \"a\\tb\"]
tagged: [!!str 1, !!int '2', !!float 3]
text: |
  line one
  line two
folded: >-
  one
  two
yes: key
1: one
";
    assert_eq!(
        parse(text, "t").unwrap().value,
        json!({
            "base": {"a": 1, "b": 2}, "more": {"b": 3, "c": 3},
            "own": {"a": 1, "b": 4}, "both": {"a": 1, "b": 2, "c": 3, "d": 5},
            "quoted": ["yes", "1", "~", "a'b", "a\tb"], "tagged": ["1", 2, 3.0],
            "text": "line one\nline two\n", "folded": "one two", "yes": "key", "1": "one",
        })
    );
}

#[test]
fn every_value_knows_its_place() {
    let document = parse("a:\n  b: 1\n  c: [x, {d: 2}]\n", "f.yaml").unwrap();
    let place = |path: &str| document.marks.find(path).to_string();
    assert_eq!(place("a"), "f.yaml:1:1: ");
    assert_eq!(place("a.b"), "f.yaml:2:6: ");
    assert_eq!(place("a.c[0]"), "f.yaml:3:7: ");
    assert_eq!(place("a.c[1].d"), "f.yaml:3:14: ");
    assert_eq!(
        place("a.new.x"),
        "f.yaml:1:1: ",
        "a value that is not written has its parent's place"
    );
    assert_eq!(place("z"), "");
}

#[test]
fn malformed_yaml_is_reported_with_file_line_and_column() {
    let nested = "[".repeat(200);
    let bomb = (1..12).fold("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, i| {
        let alias = format!("*a{}, ", i - 1).repeat(10);
        format!("{text}a{i}: &a{i} [{alias}]\n")
    });
    let rows = [
        "a: 1\nb: [1, 2\n",
        "a: b: c\n",
        "a:\n\t- b\n",
        "a: 1\nb:\n  x: 1\n  y: 2\n  x: 3\n",
        "a: *nope\n",
        "a: 'x\n",
        "[a]: 1\n",
        "a: !!python/name:os.system x\n",
        "a: !!int x\n",
        "a: 1\n---\nb: 2\n",
        "a: {<<: 1}\n",
        nested.as_str(),
        bomb.as_str(),
    ];
    let all: Vec<_> = rows
        .iter()
        .map(|text| {
            let error = parse(text, "f.yaml").unwrap_err();
            format!("{error} [{}]", error.hint().unwrap_or_default())
        })
        .collect();
    insta::assert_snapshot!(all.join("\n"), @r#"
    f.yaml:3:1: malformed YAML: while parsing a flow sequence, expected ',' or ']' [close the quote or bracket that opens here]
    f.yaml:1:5: malformed YAML: mapping values are not allowed in this context [quote a value that contains `: `]
    f.yaml:2:2: malformed YAML: tabs disallowed within this context (block indentation) [indent with spaces]
    f.yaml:5:3: duplicate key "x", first on line 3 [keep one of the two, or rename one]
    f.yaml:1:4: malformed YAML: while parsing node, found unknown anchor [quote a value that starts with `*`]
    f.yaml:1:4: malformed YAML: while scanning a quoted scalar, found unexpected end of stream [close the quote or bracket that opens here]
    f.yaml:1:1: expected a string as key []
    f.yaml:1:4: the tag tag:yaml.org,2002:!python/name:os.system is not supported [remove the tag]
    f.yaml:1:4: "x" is no !!int []
    f.yaml:2:1: expected a single document, found another [split the file at the `---` line]
    f.yaml:1:9: expected a mapping, or a list of mappings, after `<<:` []
    f.yaml:1:102: nested deeper than 100 levels []
    f.yaml:6:45: more than 1000000 values after expanding aliases []
    "#);
}

/// Guarantees: a file that cuts off in the middle is an error or a shorter value, never a panic.
#[test]
fn no_prefix_of_a_file_panics() {
    let text = "a: &x {b: [1, 'q', \"d\\u00e9\"], c: |\n  t\n}\nd: *x\ne: !!str ü\n? k\n: v\n";
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        let _ = parse(&text[..end], "f");
    }
}
