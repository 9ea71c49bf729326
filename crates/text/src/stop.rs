//! Stop strings in a stream of text.

use crate::error::TextError;

/// Watches text for stop strings.
///
/// Text is passed on as soon as no stop string can begin in it any more; of a stop string itself nothing is passed on.
/// How the text is cut into pieces makes no difference. The stop string that is complete first counts, and among those
/// complete at the same place the longest. Linear time for each stop string.
///
/// ```
/// use kapitsa_text::StopMatcher;
///
/// let mut stops = StopMatcher::new(["beta gamma"])?;
/// assert_eq!(stops.push("alpha be").text, "alpha ");
/// let step = stops.push("ta gamma delta");
/// assert_eq!((step.text.as_str(), step.stop), ("", Some(0)));
/// # Ok::<(), kapitsa_text::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<Stop>,
    /// Text that may be the start of a stop string.
    held: String,
    found: Option<usize>,
}

#[derive(Clone, Debug)]
struct Stop {
    text: Vec<u8>,
    /// Length of the longest proper prefix that is also a suffix of the first i + 1 bytes (Knuth, Morris and Pratt).
    fallback: Vec<usize>,
    /// How many bytes of it the text so far ends with.
    matched: usize,
}

/// What came of a piece of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopStep {
    /// Text that is safe to pass on.
    pub text: String,
    /// Index of the stop string that was found. The text before it has been passed on, the rest is dropped.
    pub stop: Option<usize>,
}

impl StopMatcher {
    /// # Errors
    /// If a stop string is empty.
    pub fn new<S: AsRef<str>>(stops: impl IntoIterator<Item = S>) -> Result<Self, TextError> {
        let stops = stops.into_iter().enumerate().map(|(index, stop)| match stop.as_ref() {
            "" => Err(TextError::EmptyStop { index }),
            stop => Ok(Stop::new(stop.as_bytes().to_vec())),
        });
        Ok(Self { stops: stops.collect::<Result<_, _>>()?, held: String::new(), found: None })
    }

    /// Adds a piece of text. After a stop string was found this returns the same stop and no text.
    pub fn push(&mut self, text: &str) -> StopStep {
        if self.found.is_some() {
            return StopStep { text: String::new(), stop: self.found };
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (offset, byte) in text.bytes().enumerate() {
            let complete = self
                .stops
                .iter_mut()
                .enumerate()
                .filter_map(|(index, stop)| stop.step(byte).then_some((stop.text.len(), std::cmp::Reverse(index))));
            // `max` must see every stop string, as each has to take its step.
            if let Some((len, std::cmp::Reverse(index))) = complete.max() {
                self.found = Some(index);
                self.held.truncate(before + offset + 1 - len);
                return StopStep { text: std::mem::take(&mut self.held), stop: self.found };
            }
        }
        // A stop string starts with a whole character, so this is a character boundary.
        let waiting = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        let waiting = self.held.split_off(self.held.len() - waiting);
        StopStep { text: std::mem::replace(&mut self.held, waiting), stop: None }
    }

    /// The text still held back, as no more text comes. Empty once a stop string was found.
    pub fn finish(&mut self) -> String {
        for stop in &mut self.stops {
            stop.matched = 0;
        }
        self.found = None;
        std::mem::take(&mut self.held)
    }
}

impl Stop {
    fn new(text: Vec<u8>) -> Self {
        let mut fallback = vec![0; text.len()];
        let mut len = 0;
        for index in 1..text.len() {
            while len > 0 && text[index] != text[len] {
                len = fallback[len - 1];
            }
            len += usize::from(text[index] == text[len]);
            fallback[index] = len;
        }
        Self { text, fallback, matched: 0 }
    }

    /// Adds a byte; true if the text now ends with the whole stop string.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && (self.matched == self.text.len() || byte != self.text[self.matched]) {
            self.matched = self.fallback[self.matched - 1];
        }
        self.matched += usize::from(byte == self.text[self.matched]);
        self.matched == self.text.len()
    }
}
