use serde_json::{Value, json};

use super::*;
use crate::config::interpolate::Resolver;
use crate::config::yaml::parse;

fn resolve(text: &str, environment: &[(&str, &str)]) -> Result<Value, ConfigError> {
    let document = parse(text, "f.yaml")?;
    let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let resolver =
        Resolver { root: &document.value, environment: &environment, marks: &document.marks };
    resolver.resolve(&document.value, &mut crate::config::marks::Path::root())
}

/// Guarantees: every row was checked against `OmegaConf` 2.3 with `X` unset and `Y=7`.
#[test]
fn interpolations_mean_what_omegaconf_reads() {
    let rows = [
        ("a: ${oc.env:X,false}", json!("False")),
        ("a: ${oc.env:X,null}", json!(null)),
        ("a: ${oc.env:X,''}", json!("")),
        ("a: ${oc.env:X,1.0}", json!("1.0")),
        ("a: ${oc.env:X, http://h:80/v1}", json!("http://h:80/v1")),
        ("a: ${oc.env:X,a b}", json!("a b")),
        ("a: ${oc.env:X,\"q\"}", json!("q")),
        ("a: ${oc.env:X,}", json!("")),
        ("a: ${oc.env:X,a:b}", json!("a:b")),
        ("a: ${oc.env:Y}", json!("7")),
        ("a: ${oc.decode:${oc.env:Y}}", json!(7)),
        ("a: ${oc.decode:${oc.env:X,false}}", json!(false)),
        ("a: ${oc.env:X,${b}}\nb: d", json!("d")),
        ("a: ${oc.select:zz,3}", json!(3)),
        ("a: x-${b}\nb: null", json!("x-None")),
        ("a: x-${b}\nb: true", json!("x-True")),
        ("a: x-${b}\nb: 1e-3", json!("x-0.001")),
        ("a: ${b}\nb: {c: [1, '${d}']}\nd: 2", json!({"c": [1, 2]})),
        ("a: ${b[0]}\nb: [5]", json!(5)),
        ("a: ${b.0}\nb: [5]", json!(5)),
        ("a: ${b.c.d}\nb: ${e}\ne: {c: {d: 1}}", json!(1)),
        ("a: ${${k}.c}\nk: b\nb: {c: 9}", json!(9)),
        ("a: '\\${b}'", json!("${b}")),
        ("a: '$b}'", json!("$b}")),
        ("a: ${b}${c}\nb: 1\nc: x", json!("1x")),
    ];
    for (text, expected) in rows {
        let value = resolve(text, &[("Y", "7")]).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(value["a"], expected, "{text}");
    }
    let relative =
        resolve("x: {y: 3, z: {w: '${..y} ${...k}', v: '${.u}', u: 1}}\nk: 2", &[]).unwrap();
    assert_eq!(relative["x"]["z"], json!({"w": "3 2", "v": 1, "u": 1}));
}

#[test]
fn an_interpolation_that_leads_nowhere_names_both_ends_and_the_fix() {
    let rows = [
        "policy_model:\n  api_key: ${policy_api_key}\n",
        "a: ${server.hots}\nserver: {host: h}\n",
        "a: ${oc.env:NOPE}\n",
        "a: x ${b\n",
        "a: ${oc.evn:X}\n",
        "a: ${b}\nb: ${a}\n",
        "a: ${b}\nb: ???\n",
        "a: {b: '${a}'}\n",
        "a: ${}\n",
        "a: ${....b}\n",
        "a: ${oc.decode:'[x'}\n",
    ];
    let all: Vec<_> = rows
        .iter()
        .map(|text| {
            let error = resolve(text, &[]).unwrap_err();
            format!("{error}\n  {}", error.hint().unwrap_or_default())
        })
        .collect();
    insta::assert_snapshot!(all.join("\n"), @r#"
    f.yaml:2:12: policy_model.api_key: `${policy_api_key}` refers to policy_api_key, which does not exist
      set it: `--model-api-key <value>` or `++policy_api_key=<value>`
    f.yaml:1:4: a: `${server.hots}` refers to server.hots, which does not exist
      set it: `++server.hots=<value>`; or did you mean host?
    f.yaml:1:4: a: the environment variable NOPE is not set
      set it, give a default `${oc.env:NOPE,<default>}`, or `++a=<value>`
    f.yaml:1:4: a: `x ${b` has a `${` without its closing `}`
      close it, or write `\${` for the characters themselves
    f.yaml:1:4: a: `${oc.evn:…}` is not a known function
      did you mean `${oc.env:…}`?
    f.yaml:1:4: a: `${a}` refers back to itself
      give b a plain value: `++b=<value>`
    f.yaml:1:4: a: `${b}` refers to b, which has no value yet (`???`)
      set it: `++b=<value>`
    f.yaml:1:8: a.b: `${a}` refers back to itself
      give a.b a plain value: `++a.b=<value>`
    f.yaml:1:4: a: `${}` is not a reference
      write `${section.key}`
    f.yaml:1:4: a: `${....b}` is not a reference
      write `${section.key}`
    f.yaml:1:4: a: cannot decode "[x": a list without its closing `]`
    "#);
}
