use serde_json::{Value, json};

use super::*;
use crate::config::overrides::{Override, apply_all};

fn tree(tokens: &[&str]) -> Result<Value, ConfigError> {
    let parsed = tokens.iter().map(|token| Override::parse(token)).collect::<Result<_, _>>()?;
    Ok(apply_all(parsed)?.value)
}

/// Guarantees: every row was checked against Hydra 1.3 with an empty base config.
#[test]
fn overrides_mean_what_hydra_reads() {
    let rows: &[(&[&str], Value)] = &[
        (&["+a=1"], json!({"a": 1})),
        (&["+a=1", "++a=2"], json!({"a": 2})),
        (&["+a=[x,y]"], json!({"a": ["x", "y"]})),
        (&["+a='x,y'"], json!({"a": "x,y"})),
        (&["+a="], json!({"a": ""})),
        (&["+a=null"], json!({"a": null})),
        (&["+a=NULL"], json!({"a": null})),
        (&["+a=True"], json!({"a": true})),
        (&["+a=1e-3"], json!({"a": 0.001})),
        (&["+a=1_000"], json!({"a": 1000})),
        (&["+a=1__0"], json!({"a": "1__0"})),
        (&["+a=010"], json!({"a": "010"})),
        (&["+a=00"], json!({"a": "00"})),
        (&["+a=-0"], json!({"a": 0})),
        (&["+a=-5"], json!({"a": -5})),
        (&["+a=+5"], json!({"a": 5})),
        (&["+a=.5"], json!({"a": 0.5})),
        (&["+a=1."], json!({"a": 1.0})),
        (&["+a=a b"], json!({"a": "a b"})),
        (&["+a= a "], json!({"a": "a"})),
        (&["+a=1 2"], json!({"a": "1 2"})),
        (&["+a=null x"], json!({"a": "null x"})),
        (&["+a=10 gb"], json!({"a": "10 gb"})),
        (&["+a=yes"], json!({"a": "yes"})),
        (&["+a=0x10"], json!({"a": "0x10"})),
        (&["+a=http://h:80/v1"], json!({"a": "http://h:80/v1"})),
        (&["+a=Org/Name-8B"], json!({"a": "Org/Name-8B"})),
        (&["+a='x=1'"], json!({"a": "x=1"})),
        (&["+a={b: 1, c: [2,3]}"], json!({"a": {"b": 1, "c": [2, 3]}})),
        (&["+a={b:1,c:x y}"], json!({"a": {"b": 1, "c": "x y"}})),
        (&["+a={1: 2}"], json!({"a": {"1": 2}})),
        (&["+a={a.b: 1}"], json!({"a": {"a.b": 1}})),
        (&["+a={a: 1, a: 2}"], json!({"a": {"a": 2}})),
        (&["+a=[a, 'b c', 1.5, {k: v}]"], json!({"a": ["a", "b c", 1.5, {"k": "v"}]})),
        (&["+a=[]"], json!({"a": []})),
        (&["+a={}"], json!({"a": {}})),
        (&["+a=${b.c}"], json!({"a": "${b.c}"})),
        (&["+a=${oc.env:X,y}"], json!({"a": "${oc.env:X,y}"})),
        (&["+a=x${y}z"], json!({"a": "x${y}z"})),
        (&["+a=[${x},b]"], json!({"a": ["${x}", "b"]})),
        (&["+a='${x}'"], json!({"a": "${x}"})),
        (&["+a=$y"], json!({"a": "$y"})),
        (&["+a=\\,x"], json!({"a": ",x"})),
        (&["+a=a\\=b"], json!({"a": "a=b"})),
        (&["+a=a\\ "], json!({"a": "a "})),
        (&["+a=x\\y"], json!({"a": "x\\y"})),
        (&["+a='it\\'s'"], json!({"a": "it's"})),
        (&["+a='x\\\\'"], json!({"a": "x\\"})),
        (&["+a='a\\nb'"], json!({"a": "a\\nb"})),
        (&["+a=\"a'b\""], json!({"a": "a'b"})),
        (&["+a=a:b"], json!({"a": "a:b"})),
        (&["+a=1:2"], json!({"a": "1:2"})),
        (&["+a=a|b?c"], json!({"a": "a|b?c"})),
        (&["+a=int('3')"], json!({"a": 3})),
        (&["+a=str(3)"], json!({"a": "3"})),
        (&["+a.b.c=1", "+a.b.d=2"], json!({"a": {"b": {"c": 1, "d": 2}}})),
        (&["+a=1", "+a.b=2"], json!({"a": {"b": 2}})),
        (&["+a={x: 1}", "+a={y: 2}"], json!({"a": {"x": 1, "y": 2}})),
        (&["+a=[1]", "+a=[2]"], json!({"a": [2]})),
        (&["+a=null", "+a=3"], json!({"a": 3})),
        (&["+a=[1,2]", "++a.0=5"], json!({"a": [5, 2]})),
        (&["+a.0=1"], json!({"a": {"0": 1}})),
        (&["++a.b=1", "++a=2"], json!({"a": 2})),
        (&["+a-b=1"], json!({"a-b": 1})),
        (&["+a/b=1"], json!({"a/b": 1})),
        (&["+A.b-c.d=1"], json!({"A": {"b-c": {"d": 1}}})),
        (&["+$a=1"], json!({"$a": 1})),
    ];
    for (tokens, expected) in rows {
        assert_eq!(tree(tokens).unwrap(), *expected, "{tokens:?}");
    }
}

/// Guarantees: Hydra refuses every one of these as well, except the last row's quoted key.
#[test]
fn what_hydra_refuses_is_refused() {
    let rows: &[&[&str]] = &[
        &["+a=1", "+a=2"],
        &["a=1"],
        &["~a"],
        &["+a=x,y"],
        &["+a=x=1"],
        &["+a[0]=1"],
        &["+a=\"q\"r"],
        &["+a=~/x"],
        &["+a=a#b"],
        &["+a=a&b"],
        &["+a=choice(1,2)"],
        &["+a=f(x)"],
        &["+a=[x"],
        &["+a=x]"],
        &["+a=a;b"],
        &["+a=a!b"],
        &["+a=a<b"],
        &["+ a=1"],
        &["+a =1"],
        &["+=1"],
        &["+a"],
        &["a"],
        &[""],
        &["+a@b=1"],
        &["+a={a: }"],
        &["+a=[,]"],
        &["+a=[1,]"],
        &["+1=2"],
        &["+a=${y"],
        &["+a=(x)"],
        &["+a=\n"],
        &["+a='a'b"],
        &["+a=1,2"],
        &["+a=[1,2],[3]"],
        &["+a.=1"],
        &["+.a=1"],
        &["+a..b=1"],
        &["+a={k={x}}"],
        &["+a=x,"],
        &["+a='x"],
        &["+a={x"],
        &["+a=[1]", "++a.5=1"],
        &["+a=[1]", "+a.b=1"],
    ];
    for tokens in rows {
        assert!(matches!(tree(tokens), Err(ConfigError::Override { .. })), "{tokens:?}");
    }
}

fn shown(tokens: &[&str]) -> String {
    let error = tree(tokens).unwrap_err();
    format!("{error}\n  {}", error.hint().unwrap_or_default())
}

#[test]
fn a_refused_override_says_how_to_write_it() {
    let rows: &[&[&str]] = &[
        &["+a=1", "+a=2"],
        &["a.b=1"],
        &["~a.b"],
        &["+input_glob=x,y"],
        &["+url=http://h/v1?a=b"],
        &["++path=~/data"],
        &["+a@b=1"],
        &["+a[0]=1"],
        &["+a..b=1"],
        &["+verbose"],
        &["+a=[x"],
        &["+a=choice(1,2)"],
        &["+a=${b"],
        &["+a='it"],
        &["+a=[1]", "++a.5=1"],
        &["+a=[1]", "++a={b: 1}"],
        &["+a=int(x)"],
    ];
    let all: Vec<_> = rows.iter().map(|tokens| shown(tokens)).collect();
    insta::assert_snapshot!(all.join("\n"), @r#"
    override `+a=2`: a already has a value from an earlier override
      `++a=2` replaces it
    override `a.b=1`: a.b does not exist yet, so it cannot be changed
      `++a.b=1` adds or replaces
    override `~a.b`: `~` deletes an earlier override, and there is none
      to remove a key that a file sets, use `_delete_key: a.b` there
    override `+input_glob=x,y`: an unquoted comma in the value
      write `++input_glob=[x,y]` for a list, or "++input_glob='x,y'" for text
    override `+url=http://h/v1?a=b`: unexpected `=` in an unquoted value
      quote the value: "+url='http://h/v1?a=b'"
    override `++path=~/data`: unexpected `~` in an unquoted value
      quote the value: "++path='~/data'"
    override `+a@b=1`: `@` selects a config group, and there are none
      name files with `--config FILE`
    override `+a[0]=1`: "a[0]" is not a key
      give the whole list: `++key=[a,b]`
    override `+a..b=1`: "a..b" is not a key
      a key is names joined by dots: `++section.key=value`
    override `+verbose`: expected `+key=value`
      `+verbose=<value>`
    override `+a=[x`: a list without its closing `]`
      quote the value: "+a='[x'"
    override `+a=choice(1,2)`: choice(…) is not supported, expected int(…), float(…), bool(…) or str(…)
      quote the value: "+a='choice(1,2)'"
    override `+a=${b`: `${` without its closing `}`
      close it: `++a=${other.key}`
    override `+a='it`: a quoted text without its closing '
      quote the value: "+a='\'it'"
    override `++a.5=1`: 5 is no index of the list in a.5
      give the whole list: `++key=[a,b]`
    override `++a={b: 1}`: cannot put a mapping over a list
      a is a list in an earlier override
    override `+a=int(x)`: "x" does not fit int(…)
      quote the value: "+a='int(x)'"
    "#);
}

#[test]
fn a_flag_becomes_an_override_that_keeps_its_text() {
    for text in
        ["k", "123", "a,b", "it's", r"back\slash", r"end\", r"\'", "x=1 # {y}", "", "null", "é ü"]
    {
        let token = string_override("policy_api_key", text);
        assert_eq!(tree(&[&token]).unwrap(), json!({"policy_api_key": text}), "{token}");
    }
}
