//! Where prose quotes: code fences and code spans.

/// Follows prose. A fence is opened by three backticks or more at the start of a line and closed by as many. A span is
/// opened and closed by equal runs of backticks within a line.
#[derive(Clone, Debug)]
pub(crate) struct Quotes {
    /// Nothing but white space has come in this line.
    at_indent: bool,
    /// Backticks just read, and whether they began the line.
    run: usize,
    run_at_indent: bool,
    /// Backticks of the open fence, and whether this is the line it began in.
    fence: usize,
    in_info: bool,
    /// Backticks of the open span.
    span: usize,
}

impl Quotes {
    pub(crate) fn new() -> Self {
        Self { at_indent: true, run: 0, run_at_indent: false, fence: 0, in_info: false, span: 0 }
    }

    pub(crate) fn in_fence(&self) -> bool {
        self.fence > 0
    }

    /// How much text there is up to a `<` that is not quoted, or to where a fence opens or closes. That much is taken as
    /// read.
    pub(crate) fn pass(&mut self, text: &str) -> usize {
        let in_fence = self.in_fence();
        for (index, c) in text.char_indices() {
            if c == '<' && !self.is_quoted() {
                return index;
            }
            self.read(c);
            if self.in_fence() != in_fence {
                return index + c.len_utf8();
            }
        }
        text.len()
    }

    fn is_quoted(&mut self) -> bool {
        self.end_run('<');
        self.fence > 0 || self.span > 0
    }

    pub(crate) fn read(&mut self, c: char) {
        if c == '`' {
            if self.run == 0 {
                self.run_at_indent = std::mem::take(&mut self.at_indent);
            }
            self.run += 1;
            return;
        }
        self.end_run(c);
        match c {
            '\n' => {
                self.at_indent = true;
                self.in_info = false;
                self.span = 0;
            }
            ' ' | '\t' | '\r' => {}
            _ => self.at_indent = false,
        }
    }

    /// A run of backticks means something once it is known what follows.
    fn end_run(&mut self, next: char) {
        let run = std::mem::take(&mut self.run);
        match () {
            () if run == 0 => {}
            () if self.in_info => self.fence = 0, // all in one line: a span
            () if self.fence > 0 => {
                if self.run_at_indent && run >= self.fence && !next.is_alphanumeric() {
                    self.fence = 0;
                }
            }
            () if self.run_at_indent && run >= 3 => {
                self.fence = run;
                self.in_info = true;
            }
            () if self.span == 0 => self.span = run,
            () if self.span == run => self.span = 0,
            () => {}
        }
    }
}
