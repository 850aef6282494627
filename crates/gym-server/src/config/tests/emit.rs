use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::config::{to_yaml, yaml::parse};

#[test]
fn yaml_is_written_as_the_reference_writes_it() {
    let value = json!({
        "a": "yes", "b": "1e-3", "c": 1e-5, "d": "x: y", "e": "", "f": null, "g": [], "h": {},
        "i": ["a", {"b": 1, "c": [1, 2]}], "k": "${x}", "l": " lead", "m": "it's", "n": "- a", "o": "#x",
        "p": "http://h:1/v1", "q": "null", "s": "2020-01-01", "t": "é", "u": true, "v": 1e20, "w": "12:30",
        "y": "[a", "z": "a, b", "aa": "a #b", "bb": "a:", "cc": "010", "dd": "\t", "ee": "'", "ff": "@a",
        "gg": "?", "hh": "a\\b", "ii": "=", "kk": [[1, 2], [3]], "ll": 1.0, "pp": "0o10", "qq": "---",
    });
    insta::assert_snapshot!(to_yaml(&value), @r#"
    a: 'yes'
    b: '1e-3'
    c: 1.0e-05
    d: 'x: y'
    e: ''
    f: null
    g: []
    h: {}
    i:
    - a
    - b: 1
      c:
      - 1
      - 2
    k: ${x}
    l: ' lead'
    m: it's
    'n': '- a'
    o: '#x'
    p: http://h:1/v1
    q: 'null'
    s: '2020-01-01'
    t: é
    u: true
    v: 1.0e+20
    w: '12:30'
    'y': '[a'
    z: a, b
    aa: 'a #b'
    bb: 'a:'
    cc: '010'
    dd: "\t"
    ee: ''''
    ff: '@a'
    gg: '?'
    hh: a\b
    ii: '='
    kk:
    - - 1
      - 2
    - - 3
    ll: 1.0
    pp: 0o10
    qq: '---'
    "#);
}

fn text() -> impl Strategy<Value = String> {
    let nasty = prop::sample::select(vec![
        "",
        "~",
        "null",
        "yes",
        "y",
        "1e3",
        "0x1",
        "010",
        "1_0",
        "22:22",
        ".5",
        "-.inf",
        "a: b",
        "a #b",
        "- a",
        "---",
        "...",
        "<<",
        "=",
        "?",
        "? a",
        ":",
        "a:",
        "'",
        "\"",
        "\\",
        "\n",
        "a\nb",
        "a\n",
        " a",
        "a ",
        "\t",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\0",
        "${a.b}",
        "{a}",
        "[a]",
        "!x",
        "&x",
        "*x",
        "%x",
        "@x",
        "`x",
        "2020-01-01",
        "\u{e9}",
        "\u{1f600}",
        "a, b",
        ",",
        "|",
        ">",
        "#",
    ]);
    prop_oneof![nasty.prop_map(str::to_owned), "[ -~]{0,12}", any::<String>(), "[a-z]{100,200}"]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has finite numbers only", |f| f.is_finite())
            .prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(value in value()) {
        let text = to_yaml(&value);
        let read = parse(&text, "round trip");
        prop_assert!(read.is_ok(), "{text}\n{:?}", read.err());
        prop_assert_eq!(read.unwrap().value, value, "{}", text);
    }
}
