//! Least and greatest values of pages and row groups, by which readers pass over them.

use std::ops::Range;

use parquet::data_type::ByteArray;
use parquet::file::statistics::Statistics;

use super::column::Values;

/// Texts longer than this have no statistics.
const STATISTICS_BYTES: usize = 128;

/// Where some texts lie among those that have their lengths in front.
pub(super) fn plain_range(ends: &[u32], range: Range<usize>) -> Range<usize> {
    let end_of = |count: usize| count.checked_sub(1).map_or(0, |last| ends[last] as usize);
    end_of(range.start)..end_of(range.end)
}

/// Least and greatest of some values, as a column index has them.
pub(super) fn bounds(values: &Values, range: Range<usize>) -> Option<(Vec<u8>, Vec<u8>)> {
    match values {
        Values::Ids { digits, width, is_sorted: true } => {
            let ids = digits[range.start * width..range.end * width].chunks_exact(*width);
            Some((ids.clone().next()?.to_vec(), ids.last()?.to_vec()))
        }
        Values::Plain { bytes, ends } => {
            let text = |nth: usize| &bytes[plain_range(ends, nth..nth + 1)][4..];
            let least = range.clone().map(text).min()?;
            Some((least.to_vec(), range.map(text).max()?.to_vec()))
        }
        Values::Deltas(values) | Values::Ints(values) => {
            let values = &values[range];
            let (least, most) = (values.iter().min()?, values.iter().max()?);
            Some((least.to_le_bytes().to_vec(), most.to_le_bytes().to_vec()))
        }
        _ => None,
    }
}

/// Statistics of a row group.
pub(super) fn statistics(values: &Values, nulls: u64) -> Option<Statistics> {
    let of_texts = |least: &[u8], most: &[u8]| {
        let is_short = least.len() <= STATISTICS_BYTES && most.len() <= STATISTICS_BYTES;
        is_short.then(|| {
            let bytes = |bytes: &[u8]| Some(ByteArray::from(bytes.to_vec()));
            Statistics::byte_array(bytes(least), bytes(most), None, Some(nulls), false)
        })
    };
    match values {
        Values::Text { dictionary, .. } => {
            of_texts(dictionary.values().min()?, dictionary.values().max()?)
        }
        Values::Ids { .. } | Values::Plain { .. } => {
            let (least, most) = bounds(values, 0..values.len())?;
            of_texts(&least, &most)
        }
        Values::Deltas(values) | Values::Ints(values) => {
            let (least, most) = (values.iter().min()?, values.iter().max()?);
            Some(Statistics::int64(Some(*least), Some(*most), None, Some(nulls), false))
        }
        Values::Words(values) => {
            let (least, most) = (values.iter().min()?, values.iter().max()?);
            let (least, most) = (Some(*least as i32), Some(*most as i32));
            Some(Statistics::int32(least, most, None, Some(nulls), false))
        }
        Values::Doubles(_) | Values::Bools(_) => None,
    }
}
