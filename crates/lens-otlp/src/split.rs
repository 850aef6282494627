//! One export request as two, for receivers that take no large ones.

use crate::view::Repeated;
use crate::wire::{Fields, put_bytes, put_message};

/// The items of a request, however they are grouped.
pub fn count_items(request: &[u8]) -> u64 {
    items(request).count() as u64
}

fn items(request: &[u8]) -> impl Iterator<Item = &[u8]> {
    fn inner(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
        Repeated::new(message, number).filter_map(Result::ok)
    }
    inner(request, 1).flat_map(|resource| inner(resource, 2)).flat_map(|scope| inner(scope, 2))
}

/// Two requests of about the same size with the items of one, in order; `None` when it has fewer than two.
///
/// Works for all three signals, which are framed alike.
pub fn halve(request: &[u8]) -> Option<[Vec<u8>; 2]> {
    let sizes: Vec<usize> = items(request).map(<[u8]>::len).collect();
    let half = sizes.iter().sum::<usize>() / 2;
    let mut bytes = 0;
    let fit = sizes.iter().take_while(|size| {
        bytes += **size;
        bytes <= half
    });
    let first = fit.count().clamp(1, sizes.len().checked_sub(1).filter(|last| *last > 0)?);
    Some([take(request, 0..first), take(request, first..sizes.len())])
}

/// The request with some of its items, by their place.
fn take(request: &[u8], wanted: std::ops::Range<usize>) -> Vec<u8> {
    let mut out = Vec::with_capacity(request.len());
    let mut at = 0;
    for resource in Repeated::new(request, 1).filter_map(Result::ok) {
        let mut message = Vec::new();
        let mut has_items = false;
        copy_fields(resource, &mut message, |scope, message| {
            let mut items = Vec::new();
            let mut has_own = false;
            copy_fields(scope, &mut items, |item, items| {
                if wanted.contains(&at) {
                    put_bytes(items, 2, item);
                    has_own = true;
                }
                at += 1;
            });
            if has_own {
                put_message(message, 2, |out| out.extend_from_slice(&items));
                has_items = true;
            }
        });
        if has_items {
            put_bytes(&mut out, 1, &message);
        }
    }
    out
}

/// Copies the fields of a message but those of number 2, which `each` decides on.
fn copy_fields(message: &[u8], out: &mut Vec<u8>, mut each: impl FnMut(&[u8], &mut Vec<u8>)) {
    for (number, content) in Fields::new(message).filter_map(Result::ok) {
        // All fields of these messages are length-delimited.
        let Ok(bytes) = content.bytes() else { continue };
        match number {
            2 => each(bytes, out),
            0..16 => put_bytes(out, number as u8, bytes),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Scope, put_request, put_scope_item};

    fn request(sizes: &[&[usize]]) -> Vec<u8> {
        let scopes: Vec<Vec<u8>> = sizes
            .iter()
            .map(|sizes| {
                let mut items = Vec::new();
                for size in *sizes {
                    put_scope_item(&mut items, &vec![7; *size]);
                }
                items
            })
            .collect();
        let mut out = Vec::new();
        let named =
            scopes.iter().map(|items| (Scope { name: "scope", version: "1" }, items.as_slice()));
        put_request(&mut out, b"\x0a\x00", named);
        out
    }

    fn sizes(request: &[u8]) -> Vec<usize> {
        items(request).map(<[u8]>::len).collect()
    }

    #[test]
    fn halves_hold_the_items_in_order() {
        let whole = request(&[&[10, 20, 30], &[40], &[50, 60]]);
        let [first, second] = halve(&whole).expect("several items");
        assert_eq!(sizes(&first), [10, 20, 30, 40]);
        assert_eq!(sizes(&second), [50, 60]);
        assert_eq!(first, request(&[&[10, 20, 30], &[40]]));
        assert_eq!(second, request(&[&[50, 60]]));
        assert_eq!(count_items(&whole), 6);
    }

    #[test]
    fn a_large_first_or_last_item_stands_alone() {
        let [first, second] = halve(&request(&[&[1000, 1, 1]])).expect("several items");
        assert_eq!((sizes(&first), sizes(&second)), (vec![1000], vec![1, 1]));
        let [first, second] = halve(&request(&[&[1, 1, 1000]])).expect("several items");
        assert_eq!((sizes(&first), sizes(&second)), (vec![1, 1], vec![1000]));
    }

    #[test]
    fn what_has_one_item_or_none_is_not_split() {
        assert_eq!(halve(&request(&[&[10]])), None);
        assert_eq!(halve(&request(&[])), None);
        assert_eq!(halve(b"\xff\xff"), None);
    }
}
