//! The name that was probably meant.

/// The candidate nearest to `name`, if one is near enough to be a typo.
pub(super) fn closest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    ranked(name, candidates).into_iter().next()
}

/// Candidates near enough to be a typo, nearest first.
pub(super) fn ranked<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let limit = (name.chars().count() / 3).clamp(1, 6);
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter(|candidate| *candidate != name)
        .filter_map(|candidate| {
            let distance = distance(name, candidate);
            // Somebody who types the beginning or the end of a long name means that name.
            let part = name.len() >= 3 && candidate.contains(name);
            (distance <= limit || part).then_some((distance, candidate))
        })
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().map(|(_, candidate)| candidate.to_owned()).collect()
}

/// Edits (insert, delete, replace, swap neighbours) between two names, case ignored.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.to_lowercase().chars().collect();
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut before_last = vec![0; right.len() + 1];
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1; right.len() + 1];
        for (j, b) in right.iter().enumerate() {
            row[j + 1] = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

/// `a`, `a or b`, `a, b or c`; at most eight, then how many more.
pub(super) fn one_of<S: AsRef<str>>(names: &[S], conjunction: &str) -> String {
    const SHOWN: usize = 8;
    match names {
        [] => "none".to_owned(),
        [one] => one.as_ref().to_owned(),
        many if many.len() > SHOWN => {
            let shown: Vec<_> = many[..SHOWN].iter().map(AsRef::as_ref).collect();
            format!("{} {conjunction} {} more", shown.join(", "), many.len() - SHOWN)
        }
        [start @ .., last] => {
            let start: Vec<_> = start.iter().map(AsRef::as_ref).collect();
            format!("{} {conjunction} {}", start.join(", "), last.as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_name_and_a_stranger_finds_none() {
        let names = ["example_single_tool_call", "example_multi_step", "math"];
        let find = |name| closest(name, names);
        assert_eq!(find("example_single_tol_call").as_deref(), Some("example_single_tool_call"));
        assert_eq!(find("maht").as_deref(), Some("math"));
        assert_eq!(find("single_tool").as_deref(), Some("example_single_tool_call"));
        assert_eq!(find("coding"), None);
    }
}
