use serde_json::{Value, json};

use super::*;

fn config(text: &str) -> Result<Value, ConfigError> {
    let dir = dir(&[("a.yaml", text)]);
    let mut request = request(dir.path(), &[]);
    request.config_paths = vec!["a.yaml".to_owned()];
    load_counted(&request).map(|config| config.value().clone())
}

#[test]
fn inheriting_moves_and_copying_leaves_the_source() {
    let value = config(
        "base: {x: 1, y: {z: 1, w: 1}}\nkept: {k: [1]}\nroot: {leaf: 7}\n\
         a: {_inherit_from: base, y: {z: 2}, n: 3}\nb: {_copy: kept, m: 1}\n\
         c: ${copy:kept.k}\nd: ${inherit_from:root.leaf}\n",
    )
    .unwrap();
    assert_eq!(
        pick(&value, &["a", "b", "c", "d", "kept", "root"]),
        json!({
            "a": {"x": 1, "y": {"z": 2, "w": 1}, "n": 3}, "b": {"k": [1], "m": 1}, "c": [1], "d": 7,
            "kept": {"k": [1]}, "root": {},
        })
    );
    assert_eq!(value.get("base"), None);
}

#[test]
fn directives_chain_nest_and_delete() {
    let value = config(
        "one: {p: 1, q: 1, r: 1}\ntwo: {_inherit_from: one, q: 2}\n\
         three: {in: [{_copy: two, _delete_key: 'p, r', s: 3}]}\n",
    )
    .unwrap();
    assert_eq!(
        pick(&value, &["two", "three"]),
        json!({"two": {"p": 1, "q": 2, "r": 1}, "three": {"in": [{"q": 2, "s": 3}]}})
    );
}

#[test]
fn a_missing_source_makes_a_missing_target() {
    let error = config("base: {x: ???}\na: ${copy:base.x}\n").unwrap_err();
    assert!(matches!(error, ConfigError::Missing { keys } if keys == ["base.x", "a"]));
}

#[test]
fn a_directive_that_cannot_be_followed_names_its_place() {
    let with = |text: &str| {
        let dir = dir(&[("a.yaml", text)]);
        let mut request = request(dir.path(), &[]);
        request.config_paths = vec!["a.yaml".to_owned()];
        message(&request)
    };
    let all = [
        with("base: {x: 1}\na:\n  _inherit_from: bsae\n"),
        with("base: {server: 1}\na: ${copy:base.sever}\n"),
        with("a: {b: {_inherit_from: a}}\n"),
        with("a: {_copy: a}\n"),
        with("a: {_copy: 3}\n"),
        with("a: {port: 1, _delete_key: prot}\n"),
        with("a: ???\nb: {c: [???, 1]}\nd: ???\ne: ???\n"),
    ];
    insta::assert_snapshot!(all.join("\n\n"), @r#"
    error: DIR/a.yaml:3:18: a._inherit_from: bsae does not exist
    hint: did you mean base?

    error: DIR/a.yaml:2:4: a: base.sever does not exist
    hint: did you mean base.server?

    error: DIR/a.yaml:1:24: a.b._inherit_from: inherits from a, which contains it
    hint: use `_copy`, which leaves the source in place

    error: DIR/a.yaml:1:1: a: inherits from itself

    error: DIR/a.yaml:1:12: a._copy: expected a dotted path
    hint: `_copy: section.key`

    error: DIR/a.yaml:1:27: a._delete_key: there is no key "prot" to delete
    hint: did you mean port?

    error: no value for a, b.c[0], d and e
    hint: add `++a=<value>`, `++b.c[0]=<value>` and `++d=<value>`
    "#);
}
