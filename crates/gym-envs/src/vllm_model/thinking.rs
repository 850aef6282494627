//! Reasoning written into text as `<think>…</think>` blocks.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The insides of all blocks, and the text without them. A block that is not closed stays text.
pub fn split(text: &str) -> (Vec<&str>, String) {
    let mut blocks = Vec::new();
    let mut rest = text;
    let mut kept = String::with_capacity(text.len());
    while let Some(open) = rest.find(OPEN) {
        let inside = &rest[open + OPEN.len()..];
        let Some(close) = inside.find(CLOSE) else { break };
        kept.push_str(&rest[..open]);
        blocks.push(&inside[..close]);
        rest = &inside[close + CLOSE.len()..];
    }
    kept.push_str(rest);
    (blocks, kept)
}

/// The reasoning as a block, followed by the content.
pub fn join(reasoning: &str, content: &str) -> String {
    format!("{OPEN}{reasoning}{CLOSE}{content}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_closed_block_is_taken_out_and_the_rest_is_not_trimmed() {
        assert_eq!(
            split("<think>a\nb</think> x <think></think>y"),
            (vec!["a\nb", ""], " x y".to_owned())
        );
        assert_eq!(split("x <think>open"), (vec![], "x <think>open".to_owned()));
        assert_eq!(
            split("<think>a<think>b</think>c</think>"),
            (vec!["a<think>b"], "c</think>".to_owned())
        );
        assert_eq!(split(&join("r", "c")), (vec!["r"], "c".to_owned()));
    }
}
