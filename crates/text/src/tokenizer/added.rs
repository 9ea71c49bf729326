//! Added tokens: control and user-defined tokens that are found whole in the text before anything else happens to it.

use std::ops::Range;

use hashbrown::HashMap;

use crate::error::{TextError, shown};

/// Longest spelling of an added token; real ones have up to some 50 bytes. Bounds the time that a text takes which almost
/// has one everywhere.
const MAX_BYTES: usize = 256;

/// A token that is matched whole.
#[derive(Clone, Debug)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) content: String,
    /// Control tokens, and those that only the chat template may write: not matched where text is plain.
    pub(crate) guarded: bool,
    /// Takes the white space before it, after it.
    pub(crate) strip_left: bool,
    pub(crate) strip_right: bool,
    /// Only where no letter, digit or underscore touches it.
    pub(crate) single_word: bool,
    /// Matched in the text after normalisation instead of before.
    pub(crate) normalized: bool,
}

impl AddedToken {
    /// A control token, matched wherever it is spelled.
    pub(crate) fn control(id: u32, content: &str) -> Self {
        let (content, guarded, normalized) = (content.to_owned(), true, false);
        Self { id, content, guarded, strip_left: false, strip_right: false, single_word: false, normalized }
    }
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// Text to tokenize.
    Text(Range<usize>),
    /// An added token.
    Token(u32),
}

/// Where guarded tokens are text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plain<'a> {
    /// Everywhere.
    Everywhere,
    /// In these ranges, ascending and apart.
    Ranges(&'a [Range<usize>]),
}

impl Plain<'_> {
    pub(crate) fn touches(&self, range: &Range<usize>) -> bool {
        match self {
            Plain::Everywhere => true,
            Plain::Ranges(ranges) => {
                let next = ranges.partition_point(|plain| plain.end <= range.start);
                ranges.get(next).is_some_and(|plain| plain.start < range.end)
            }
        }
    }
}

/// Finds added tokens in text, longest first among those that start at the same place.
#[derive(Clone)]
pub(crate) struct AddedTokens {
    tokens: Vec<AddedToken>,
    trie: Trie,
}

/// Spellings as a tree of bytes; node 0 is the root.
#[derive(Clone, Default)]
struct Trie {
    /// Which bytes spellings begin with: most places in a text are done with after one look here.
    first: [u64; 4],
    children: HashMap<(u32, u8), u32>,
    /// Token whose spelling ends at a node.
    ends: HashMap<u32, usize>,
    nodes: u32,
}

impl Trie {
    fn insert(&mut self, spelling: &str, token: usize) {
        let mut node = 0;
        for &byte in spelling.as_bytes() {
            let next = self.children.entry((node, byte)).or_insert_with(|| {
                self.nodes += 1;
                self.nodes
            });
            node = *next;
        }
        let first = spelling.as_bytes()[0];
        self.first[usize::from(first >> 6)] |= 1 << (first & 63);
        self.ends.insert(node, token);
    }

    /// The longest spelling that `text` begins with: token and length.
    fn longest_prefix(&self, text: &[u8]) -> Option<(usize, usize)> {
        let (mut node, mut longest) = (0, None);
        for (index, &byte) in text.iter().enumerate() {
            let Some(&next) = self.children.get(&(node, byte)) else { break };
            node = next;
            if let Some(&token) = self.ends.get(&node) {
                longest = Some((token, index + 1));
            }
        }
        longest
    }

    fn starts_with(&self, byte: u8) -> bool {
        self.first[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

impl AddedTokens {
    pub(crate) fn new(mut tokens: Vec<AddedToken>) -> Result<Self, TextError> {
        tokens.retain(|token| !token.content.is_empty());
        let mut trie = Trie::default();
        for (index, token) in tokens.iter().enumerate() {
            if token.content.len() > MAX_BYTES {
                let (content, bytes) = (shown(&token.content), token.content.len());
                let what = format!("added token `{content}` has {bytes} bytes, the limit is {MAX_BYTES}");
                return Err(TextError::vocabulary(what));
            }
            trie.insert(&token.content, index);
        }
        Ok(Self { tokens, trie })
    }

    pub(crate) fn tokens(&self) -> &[AddedToken] {
        &self.tokens
    }

    /// Marks tokens as guarded.
    pub(crate) fn guard(&mut self, should: impl Fn(&AddedToken) -> bool) {
        for token in &mut self.tokens {
            token.guarded |= should(token);
        }
    }

    /// Cuts `text` at the added tokens; empty stretches of text are left out.
    pub(crate) fn split(&self, text: &str, plain: Plain<'_>) -> Vec<Fragment> {
        let mut fragments = Vec::new();
        let mut done = 0; // everything before it is in `fragments`
        let mut from = 0; // where to look next
        while let Some((token, found)) = self.find(text, from) {
            let accepted = !(token.guarded && plain.touches(&found)) && (!token.single_word || alone(text, &found));
            if !accepted {
                // Another token may start inside the one that does not count.
                from = found.start + text[found.start..].chars().next().map_or(1, char::len_utf8);
                continue;
            }
            let (mut start, mut end) = (found.start, found.end);
            if token.strip_left {
                start = text[..start].trim_end().len().max(done);
            }
            if token.strip_right {
                end = text.len() - text[end..].trim_start().len();
            }
            if done < start {
                fragments.push(Fragment::Text(done..start));
            }
            fragments.push(Fragment::Token(token.id));
            (done, from) = (end, end);
        }
        if done < text.len() {
            fragments.push(Fragment::Text(done..text.len()));
        }
        fragments
    }

    /// Ranges of `text` that are guarded tokens for which `should` holds.
    pub(crate) fn guarded_ranges(&self, text: &str, should: impl Fn(&AddedToken) -> bool) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let mut from = 0;
        while let Some((token, found)) = self.find(text, from) {
            if token.guarded && should(token) {
                from = found.end;
                ranges.push(found);
            } else {
                from = found.start + text[found.start..].chars().next().map_or(1, char::len_utf8);
            }
        }
        ranges
    }

    fn find(&self, text: &str, from: usize) -> Option<(&AddedToken, Range<usize>)> {
        let bytes = text.as_bytes();
        let starts = (from..bytes.len()).filter(|&start| self.trie.starts_with(bytes[start]));
        let find = |start: usize| Some((start, self.trie.longest_prefix(&bytes[start..])?));
        let (start, (token, len)) = starts.map(find).find(Option::is_some)??;
        Some((&self.tokens[token], start..start + len))
    }
}

/// Whether no word character touches the range.
fn alone(text: &str, range: &Range<usize>) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    !text[..range.start].chars().next_back().is_some_and(word) && !text[range.end..].chars().next().is_some_and(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: u32, content: &str) -> AddedToken {
        AddedToken::control(id, content)
    }

    fn parts(tokens: Vec<AddedToken>, text: &str, plain: Plain<'_>) -> Vec<String> {
        let added = AddedTokens::new(tokens).unwrap();
        let part = |fragment: &Fragment| match fragment {
            Fragment::Text(range) => text[range.clone()].to_owned(),
            Fragment::Token(id) => format!("#{id}"),
        };
        added.split(text, plain).iter().map(part).collect()
    }

    #[test]
    fn the_longest_token_at_the_leftmost_place_wins() {
        let tokens = vec![token(1, "<a>"), token(2, "<a><b>"), token(3, "x<a"), token(4, "")];
        assert_eq!(parts(tokens.clone(), "-<a><b>-", Plain::Ranges(&[])), ["-", "#2", "-"]);
        assert_eq!(parts(tokens, "x<a><a>", Plain::Ranges(&[])), ["#3", ">", "#1"]);
    }

    #[test]
    fn plain_text_hides_guarded_tokens_but_not_those_inside_them() {
        let mut inner = token(2, "\n\n");
        inner.guarded = false;
        let tokens = vec![token(1, "<\n\n>"), inner];
        assert_eq!(parts(tokens.clone(), "<\n\n>", Plain::Everywhere), ["<", "#2", ">"]);
        let plain = Plain::Ranges(std::slice::from_ref(&(1..3)));
        assert_eq!(parts(tokens, "<\n\n><\n\n>", plain), ["<", "#2", ">", "#1"]);
    }

    #[test]
    fn tokens_take_white_space_or_need_a_word_of_their_own() {
        let mut strips = token(1, "<m>");
        (strips.strip_left, strips.strip_right) = (true, true);
        assert_eq!(parts(vec![strips], "a \t<m>\u{a0} <m>b", Plain::Ranges(&[])), ["a", "#1", "#1", "b"]);
        let mut word = token(1, "ing");
        word.single_word = true;
        assert_eq!(parts(vec![word], "king ing inga", Plain::Ranges(&[])), ["king ", "#1", " inga"]);
    }
}
