//! Lists of texts in the head of a GGUF file: a real model's vocabulary, for models made here.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The texts under `key`.
///
/// # Panics
/// If the file is no GGUF file or does not have them.
pub(crate) fn texts(path: &Path, key: &str) -> Vec<String> {
    let mut head = Head(BufReader::new(File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))));
    assert_eq!(&head.bytes::<4>(), b"GGUF");
    head.u32(); // version
    head.u64(); // tensors
    for _ in 0..head.u64() {
        let name = head.text();
        let kind = head.u32();
        if name != key {
            head.skip(kind);
            continue;
        }
        assert_eq!((kind, head.u32()), (LIST, TEXT), "{key}");
        return (0..head.u64()).map(|_| head.text()).collect();
    }
    panic!("{} has no {key}", path.display())
}

/// Types of values.
const TEXT: u32 = 8;
const LIST: u32 = 9;

struct Head(BufReader<File>);

impl Head {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).expect("the file goes on");
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    fn text(&mut self) -> String {
        let mut bytes = vec![0; self.u64() as usize];
        self.0.read_exact(&mut bytes).expect("the file goes on");
        String::from_utf8(bytes).expect("texts are UTF-8")
    }

    fn skip(&mut self, kind: u32) {
        match kind {
            0 | 1 | 7 => drop(self.bytes::<1>()),
            2 | 3 => drop(self.bytes::<2>()),
            4..=6 => drop(self.bytes::<4>()),
            10..=12 => drop(self.bytes::<8>()),
            TEXT => drop(self.text()),
            LIST => {
                let kind = self.u32();
                (0..self.u64()).for_each(|_| self.skip(kind));
            }
            other => panic!("a value of type {other}"),
        }
    }
}
