//! The byte alphabet of byte-level BPE: each byte has a printable stand-in, so that a vocabulary file is valid text.
//!
//! Bytes that print in Latin-1 (33-126, 161-172, 174-255) stand for themselves; the other 68 are, in ascending order,
//! U+0100 and up. The table comes from GPT-2 and every later byte-level vocabulary uses it.

/// The stand-in of each byte.
pub(crate) const CHAR_OF_BYTE: [char; 256] = {
    let mut table = ['\0'; 256];
    let mut next = 0x100;
    let mut byte = 0usize;
    while byte < 256 {
        let code = if prints_itself(byte) {
            byte as u32
        } else {
            next += 1;
            next - 1
        };
        table[byte] = match char::from_u32(code) {
            Some(c) => c,
            None => panic!("all codes are below U+0200"),
        };
        byte += 1;
    }
    table
};

const fn prints_itself(byte: usize) -> bool {
    matches!(byte, 33..=126 | 161..=172 | 174..=255)
}

/// The byte a character stands for, if it is in the alphabet.
pub(crate) fn byte_of_char(c: char) -> Option<u8> {
    const BYTE_OF_HIGH: [u8; 68] = {
        let mut table = [0u8; 68];
        let mut byte = 0usize;
        while byte < 256 {
            let code = CHAR_OF_BYTE[byte] as usize;
            if code >= 0x100 {
                table[code - 0x100] = byte as u8;
            }
            byte += 1;
        }
        table
    };
    match c as usize {
        code @ 0..=255 if prints_itself(code) => Some(code as u8),
        code @ 0x100..0x144 => Some(BYTE_OF_HIGH[code - 0x100]),
        _ => None,
    }
}

/// Writes the bytes that a spelled token stands for to `out`. False, with `out` unchanged, if a character is outside the
/// alphabet: then the token is not written in it (a special token in plain text, say).
pub(crate) fn decode_spelling(spelling: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    for c in spelling.chars() {
        match byte_of_char(c) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_back() {
        for byte in 0..=255u8 {
            assert_eq!(byte_of_char(CHAR_OF_BYTE[byte as usize]), Some(byte));
        }
        assert_eq!(CHAR_OF_BYTE[b' ' as usize], 'Ġ');
        assert_eq!(CHAR_OF_BYTE[b'\n' as usize], 'Ċ');
        assert_eq!(CHAR_OF_BYTE[0xad], 'Ń');
        for outside in [' ', '\u{a0}', '\u{ad}', '\u{144}', '▁', '中'] {
            assert_eq!(byte_of_char(outside), None);
        }
    }

    #[test]
    fn spelling_outside_the_alphabet_is_left_alone() {
        let mut out = vec![1];
        assert!(!decode_spelling("Ġa▁", &mut out));
        assert_eq!(out, [1]);
        assert!(decode_spelling("ĠaÃ©", &mut out));
        assert_eq!(out, b"\x01 a\xc3\xa9");
    }
}
