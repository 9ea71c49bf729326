//! Patterns of pre-tokenizers: regular expressions in the dialect of tokenizer files.
//!
//! The dialect is Oniguruma's. The binding of that library panics when a match takes too many steps, which a hostile
//! expression does on any text and an ordinary one on a long enough run of spaces; so its place is taken here. Almost every pattern in use runs on a finite automaton, in linear time, once its last
//! two alternatives `\s+(?!\S)|\s+` are taken care of by hand: a run of white space up to the end of the text is one
//! match; before other text the run leaves its last character to the word that follows. Patterns with other
//! look-around or possessive quantifiers go to a backtracking engine that gives up after a fixed number of steps.

use std::ops::Range;

use regex_automata::{
    Anchored, Input, MatchKind, PatternID,
    meta::Regex as Automaton,
    util::syntax::{self, Config as Syntax},
};

use crate::error::{TextError, shown};

/// Bounds the memory of a compiled pattern from a file.
const MAX_COMPILED_BYTES: usize = 16 << 20;

/// Matches in a text, from left to right, each starting where the one before ended or later.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Engine);

#[derive(Clone, Debug)]
enum Engine {
    Literal(String),
    /// `leaves_last`: the second pattern of the automaton is a final `\s+(?!\S)|\s+`.
    Linear {
        automaton: Automaton,
        leaves_last: bool,
    },
    Backtracking(Box<fancy_regex::Regex>),
}

/// The last alternatives of nearly every pattern, in both ways they are written. The second has no alternative for the
/// single white space character left over; it then stands between two matches, which cuts the text at the same places.
const WHITE_SPACE_TAILS: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)"];

impl Pattern {
    /// This text and nothing else.
    pub(crate) fn literal(text: &str) -> Self {
        Self(Engine::Literal(text.to_owned()))
    }

    /// # Errors
    /// If neither engine can run the expression.
    pub(crate) fn regex(expression: &str) -> Result<Self, TextError> {
        let unsupported = |reason: &dyn std::fmt::Display| {
            TextError::unsupported(format!("the regular expression `{}` ({reason})", shown(expression)))
        };
        // In this dialect [:alpha:] means Unicode letters; the engines here take it for ASCII.
        if expression.contains("[:") {
            return Err(unsupported(&"named classes in brackets"));
        }
        let tail = WHITE_SPACE_TAILS.iter().find_map(|tail| expression.strip_suffix(tail));
        if !needs_backtracking(tail.unwrap_or(expression)) {
            let patterns: &[&str] = match &tail {
                Some(head) => &[head, r"\s+"],
                None => &[expression],
            };
            if let Ok(automaton) = compile(patterns) {
                return Ok(Self(Engine::Linear { automaton, leaves_last: tail.is_some() }));
            }
        }
        // `^` and `$` are always per line in this dialect.
        let regex = fancy_regex::RegexBuilder::new(&format!("(?m:{expression})"))
            .delegate_size_limit(MAX_COMPILED_BYTES)
            .build()
            .map_err(|error| unsupported(&error))?;
        Ok(Self(Engine::Backtracking(Box::new(regex))))
    }

    /// Calls `each` with every match.
    ///
    /// # Errors
    /// If the backtracking engine gives up on this text.
    pub(crate) fn for_each(&self, text: &str, mut each: impl FnMut(Range<usize>)) -> Result<(), TextError> {
        match &self.0 {
            Engine::Literal(literal) => {
                if !literal.is_empty() {
                    text.match_indices(literal.as_str()).for_each(|(start, found)| each(start..start + found.len()));
                }
                Ok(())
            }
            Engine::Linear { automaton, leaves_last } => {
                let find = |from| Ok(find_linear(automaton, *leaves_last, text, from));
                for_each_match(text, find, each)
            }
            Engine::Backtracking(regex) => {
                let find = |from| match regex.find_from_pos(text, from) {
                    Ok(found) => Ok(found.map(|found| found.start()..found.end())),
                    Err(error) => Err(TextError::encode(format!("the pre-tokenizer gave up at byte {from}: {error}"))),
                };
                for_each_match(text, find, each)
            }
        }
    }
}

/// A pattern in the form that the library cuts text with.
pub(crate) struct Matches<'a> {
    pub(crate) pattern: &'a Pattern,
    /// Matches and the text between them change places.
    pub(crate) invert: bool,
}

impl tokenizers::pattern::Pattern for Matches<'_> {
    fn find_matches(&self, text: &str) -> tokenizers::Result<Vec<(tokenizers::Offsets, bool)>> {
        let mut parts = Vec::with_capacity(text.len() / 4);
        let mut done = 0;
        self.pattern.for_each(text, |found| {
            if done < found.start {
                parts.push(((done, found.start), self.invert));
            }
            done = found.end;
            parts.push(((found.start, found.end), !self.invert));
        })?;
        if done < text.len() || text.is_empty() {
            parts.push(((done, text.len()), self.invert));
        }
        Ok(parts)
    }
}

/// Steps through the matches as regular expression libraries do: after an empty match one character is passed over, and
/// an empty match right after another match does not count.
fn for_each_match(
    text: &str,
    find: impl Fn(usize) -> Result<Option<Range<usize>>, TextError>,
    mut each: impl FnMut(Range<usize>),
) -> Result<(), TextError> {
    let (mut from, mut last_end) = (0, None);
    while from <= text.len() {
        let Some(found) = find(from)? else { break };
        if found.is_empty() {
            from = found.end + text[found.end..].chars().next().map_or(1, char::len_utf8);
            if last_end == Some(found.end) {
                continue;
            }
        } else {
            from = found.end;
        }
        last_end = Some(found.end);
        each(found);
    }
    Ok(())
}

fn find_linear(automaton: &Automaton, leaves_last: bool, text: &str, from: usize) -> Option<Range<usize>> {
    // Most patterns match everywhere, so try right here first: that needs no second pass to find the start.
    let here = Input::new(text).span(from..text.len()).anchored(Anchored::Yes);
    let found = automaton.search(&here).or_else(|| automaton.search(&here.anchored(Anchored::No)))?;
    let mut range = found.range();
    if leaves_last && found.pattern() == PatternID::must(1) && range.end < text.len() {
        let last = text[range.clone()].char_indices().next_back().map_or(0, |(offset, _)| offset);
        if last > 0 {
            range.end = range.start + last;
        }
    }
    Some(range)
}

fn compile(patterns: &[&str]) -> Result<Automaton, Box<regex_automata::meta::BuildError>> {
    let syntax: Syntax = syntax::Config::new().multi_line(true).nest_limit(100);
    let config = Automaton::config().match_kind(MatchKind::LeftmostFirst).nfa_size_limit(Some(MAX_COMPILED_BYTES));
    Automaton::builder().configure(config).syntax(syntax).build_many(patterns).map_err(Box::new)
}

/// Whether the expression may use what only the backtracking engine has. Errs on the side of yes.
fn needs_backtracking(expression: &str) -> bool {
    const MARKS: [&str; 9] = ["(?=", "(?!", "(?<", "(?>", "++", "*+", "?+", "}+", r"\G"];
    MARKS.iter().any(|mark| expression.contains(mark)) || has_backreference(expression)
}

fn has_backreference(expression: &str) -> bool {
    expression.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && matches!(pair[1], b'1'..=b'9' | b'k'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches<'t>(expression: &str, text: &'t str) -> Vec<&'t str> {
        let mut out = Vec::new();
        Pattern::regex(expression).unwrap().for_each(text, |range| out.push(&text[range])).unwrap();
        out
    }

    #[test]
    fn white_space_leaves_its_last_character_to_the_next_word() {
        let gpt2 = r"'s| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
        assert_eq!(matches(gpt2, "a   b\n\n c\t\td  "), ["a", "  ", " b", "\n\n", " c", "\t", "\t", "d", "  "]);
        let lines = r" ?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+";
        assert_eq!(matches(lines, "a  \n\n  b \n"), ["a", "  \n\n", " ", " b", " \n"]);
    }

    #[test]
    fn both_engines_agree_on_the_white_space_rule() {
        let expression = r" ?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+";
        for text in ["", " ", "  ", " \u{3000}x", "\u{3000}\u{a0}x \r\n\r\n y\n", "x \n \n", "\t\tx\t"] {
            let slow = Pattern(Engine::Backtracking(Box::new(fancy_regex::Regex::new(expression).unwrap())));
            let mut want = Vec::new();
            slow.for_each(text, |range| want.push(&text[range])).unwrap();
            assert_eq!(matches(expression, text), want, "{text:?}");
        }
    }

    #[test]
    fn look_around_and_possessive_quantifiers_work() {
        assert_eq!(matches(r"\d{1,3}(?=(?:\d{3})*\b)", "1234567 12"), ["1", "234", "567", "12"]);
        assert_eq!(matches(r"[^\r\n\p{L}\p{N}]?+\p{L}+", "-ab"), ["-ab"]);
        assert_eq!(matches(r"(?=(\d{3})+(?!\d))", "1234567"), ["", ""]);
    }

    #[test]
    fn hostile_expressions_are_errors() {
        for bad in ["(", "[a-", "(?<n>a)\\k<m>", "[[:alpha:]]+", &"(".repeat(100_000)] {
            assert!(Pattern::regex(bad).is_err(), "{}", shown(bad));
        }
        // Too large for the automaton; the other engine counts, and finds nothing.
        Pattern::regex("a{99999}{99999}{99999}").unwrap().for_each(&"a".repeat(1000), |_| panic!()).unwrap();
        let slow = Pattern::regex(r"(?=x)x|(a|aa)+(?=b)$").unwrap();
        let error = slow.for_each(&"a".repeat(60), |_| {}).unwrap_err().to_string();
        assert!(error.contains("gave up"), "{error}");
    }
}
