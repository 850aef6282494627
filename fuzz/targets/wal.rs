//! A log as it may be found: damaged anywhere, or with whole frames around anything. The store opens and can be read.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use lens_store::store::Store;
use libfuzzer_sys::fuzz_target;

/// In memory where there is such a place: every input is a file.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let shm = PathBuf::from("/dev/shm");
    let base = if shm.is_dir() { shm } else { std::env::temp_dir() };
    let folder = base.join(format!("gym-fuzz-wal-{}", std::process::id()));
    fs::create_dir_all(folder.join("wal")).expect("a folder");
    folder
});

/// A frame with a valid checksum around `content`: signal, encoding, body.
fn put_frame(out: &mut Vec<u8>, seq: u64, content: &[u8]) {
    let mut checked = seq.to_le_bytes().to_vec();
    checked.extend_from_slice(&1_u64.to_le_bytes());
    checked.extend_from_slice(content);
    out.extend_from_slice(&(checked.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&checked).to_le_bytes());
    out.extend_from_slice(&checked);
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    let mut file = b"LENSWAL1".to_vec();
    if kind % 2 == 0 {
        file.extend_from_slice(data);
    } else {
        // Frames of the content's own making, then a tail without a frame.
        for (at, content) in data.split(|byte| *byte == 0xff).enumerate() {
            if at % 4 == 3 {
                file.extend_from_slice(content);
            } else {
                put_frame(&mut file, at as u64 + 1, content);
            }
        }
    }
    let path = FOLDER.join("wal").join("0000000001.wal");
    fs::write(&path, &file).expect("a file");
    let Ok(store) = Store::open_read_only(&FOLDER) else { return };
    let snapshot = store.snapshot();
    for span in snapshot.memory_spans() {
        span.view().expect("checked");
        assert!(!snapshot.trace(span.trace_id).expect("it is in memory").is_empty());
    }
});
