//! A grammar in Lark's syntax for what a JSON string holds.
//!
//! Each character is written in one way: as itself, or as a backslash and a letter. `llguidance` reads a terminal as long as
//! it can and never goes back. So after `[a-z"]+` it would take the backslash of a line break for that of a quote, and find no
//! way on at the `n`. Here a terminal takes the backslash that begins the next character along, if there is one, and what
//! follows has to begin after it: each rule and terminal comes in four kinds, by whether the backslash before its first
//! character has been taken, and whether it takes the one after its last. Then every terminal ends where it would in the
//! text itself.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;

use llguidance::regex_to_lark;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Literal, Repetition};

use crate::error::{GrammarError, shown};
use crate::grammar::quoted;
use crate::lark_text::error;
use crate::lark_tree::{self, Definitions, Tree};

/// Bytes of the rules and terminals that come out, and parts of expressions on the way.
const MAX_SIZE: usize = 4 << 20;

/// Parts of rules.
const MAX_NODES: usize = 20_000;

/// Terminals are looked into so deep, from one to another.
const MAX_DEPTH: usize = 100;

/// Characters that are written as a backslash and a letter. Other control characters are not written.
const ESCAPES: [(char, char); 7] =
    [('"', '"'), ('\\', '\\'), ('\u{8}', 'b'), ('\u{c}', 'f'), ('\n', 'n'), ('\r', 'r'), ('\t', 't')];

/// Lark for the inside of JSON strings that stand for texts of a grammar.
pub(crate) fn in_json_string(lark: &str) -> Result<String, GrammarError> {
    let definitions = lark_tree::read(lark)?;
    let mut writer =
        Writer { definitions: &definitions, terminals: HashMap::new(), out: String::new(), left: MAX_SIZE };
    let mut rules = Rules { writer: &mut writer, nodes: vec![], names: HashMap::new(), ignored: None };
    let start = rules.all()?;
    let nodes = std::mem::take(&mut rules.nodes);
    writer.rules(&nodes, start)?;
    Ok(writer.out)
}

/// An expression for terminals of Lark, and what is left of it after a backslash, if it can begin with one.
#[derive(Clone, Debug)]
struct Terminal {
    whole: String,
    rest: Option<String>,
    may_be_empty: bool,
}

/// What has been written before a part, or after it.
const PLAIN: usize = 0;
/// The backslash of the next character.
const BACKSLASH: usize = 1;
/// Nothing at all. Only needed where something is ignored, as that is so between terminals.
const NOTHING: usize = 2;

/// For each pair of what is before and after a part.
type Kinds = [[bool; 3]; 3];

/// A part of a rule.
enum Node {
    Empty,
    Terminal(Terminal),
    /// A part, and what may stand before it if anything does.
    After(usize, usize),
    /// One after the other.
    Pair(usize, usize),
    Choice(Vec<usize>),
    /// Any number.
    Many(usize),
}

struct Writer<'a> {
    definitions: &'a Definitions,
    /// Those that have been written, by name.
    terminals: HashMap<&'a str, Terminal>,
    out: String,
    left: usize,
}

impl<'a> Writer<'a> {
    fn spend(&mut self, size: usize) -> Result<(), GrammarError> {
        let too_large = || GrammarError::Grammar { reason: format!("written out it is larger than {MAX_SIZE} bytes") };
        self.left = self.left.checked_sub(size).ok_or_else(too_large)?;
        Ok(())
    }

    /// Adds a terminal, and returns the expressions that name it.
    fn name(&mut self, terminal: Terminal) -> Result<Terminal, GrammarError> {
        let whole = format!("T{}", self.out.len());
        let rest = terminal.rest.as_ref().map(|_| format!("{whole}_REST"));
        let start = self.out.len();
        writeln!(self.out, "{whole}: {}", terminal.whole).expect("a string grows");
        if let (Some(name), Some(body)) = (&rest, &terminal.rest) {
            writeln!(self.out, "{name}: {body}").expect("a string grows");
        }
        self.spend(self.out.len() - start)?;
        Ok(Terminal { whole, rest, may_be_empty: terminal.may_be_empty })
    }

    /// `depth` counts names and groups.
    fn terminal(&mut self, tree: &'a Tree, depth: usize) -> Result<Terminal, GrammarError> {
        let terminal = match tree {
            Tree::Name { name, line } => return self.named(name, *line, depth),
            Tree::Text(text) => text_terminal(text)?,
            Tree::Regex(hir) => Terminal {
                whole: regex(&self.whole(hir)?),
                rest: self.rest(hir)?.map(|rest| regex(&rest)),
                may_be_empty: may_be_empty(hir),
            },
            Tree::Sequence(parts) => {
                let parts = self.terminals(parts, depth)?;
                let mut rests = vec![];
                for (at, part) in parts.iter().enumerate() {
                    if let Some(rest) = &part.rest {
                        let after = &parts[at + 1..];
                        self.spend(after.iter().map(|part| part.whole.len() + 1).sum())?;
                        rests.push(joined(std::iter::once(rest).chain(after.iter().map(|part| &part.whole)), " "));
                    }
                    if !part.may_be_empty {
                        break;
                    }
                }
                Terminal {
                    whole: joined(parts.iter().map(|part| &part.whole), " "),
                    rest: if rests.is_empty() { None } else { Some(joined(rests.iter(), " | ")) },
                    may_be_empty: parts.iter().all(|part| part.may_be_empty),
                }
            }
            Tree::Choice(options) => self.choice(options, depth)?,
            // As characters are written in one way, what two expressions share is written as what both allow.
            Tree::Both { parts, .. } => {
                let parts = self.terminals(parts, depth)?;
                let rests: Option<Vec<&String>> = parts.iter().map(|part| part.rest.as_ref()).collect();
                Terminal {
                    whole: joined(parts.iter().map(|part| &part.whole), " & "),
                    rest: rests.map(|rests| joined(rests.into_iter(), " & ")),
                    may_be_empty: parts.iter().all(|part| part.may_be_empty),
                }
            }
            Tree::Repeat { of, min, max, .. } => {
                let of = self.terminal(of, depth + 1)?;
                let repeated = |min: usize, max: Option<usize>| match max {
                    None => format!("( {} ){{{min},}}", of.whole),
                    Some(0) => quoted(""),
                    Some(max) => format!("( {} ){{{min},{max}}}", of.whole),
                };
                let after = repeated(min.saturating_sub(1), max.map(|max| max.saturating_sub(1)));
                Terminal {
                    whole: repeated(*min, *max),
                    rest: of.rest.as_ref().map(|rest| format!("( {rest} {after} )")),
                    may_be_empty: of.may_be_empty || *min == 0,
                }
            }
        };
        self.spend(terminal.whole.len() + terminal.rest.as_ref().map_or(0, String::len))?;
        Ok(terminal)
    }

    fn choice(&mut self, options: &'a [Tree], depth: usize) -> Result<Terminal, GrammarError> {
        let options = self.terminals(options, depth)?;
        let rests: Vec<&String> = options.iter().filter_map(|option| option.rest.as_ref()).collect();
        Ok(Terminal {
            whole: joined(options.iter().map(|option| &option.whole), " | "),
            rest: if rests.is_empty() { None } else { Some(joined(rests.into_iter(), " | ")) },
            may_be_empty: options.iter().any(|option| option.may_be_empty),
        })
    }

    fn terminals(&mut self, trees: &'a [Tree], depth: usize) -> Result<Vec<Terminal>, GrammarError> {
        trees.iter().map(|tree| self.terminal(tree, depth + 1)).collect()
    }

    fn named(&mut self, name: &str, line: usize, depth: usize) -> Result<Terminal, GrammarError> {
        if let Some(terminal) = self.terminals.get(name) {
            return Ok(terminal.clone());
        }
        if depth > MAX_DEPTH {
            return Err(error(line, format!("`{}` leads to itself, or too far", shown(name, 40))));
        }
        let unknown = || error(line, format!("there is no terminal `{}`", shown(name, 40)));
        let (name, tree) = self.definitions.terminals.get_key_value(name).ok_or_else(unknown)?;
        let terminal = self.terminal(tree, depth + 1)?;
        let terminal = self.name(terminal)?;
        self.terminals.insert(name, terminal.clone());
        Ok(terminal)
    }

    /// A regular expression for how its texts are written.
    fn whole(&mut self, hir: &Hir) -> Result<Hir, GrammarError> {
        self.spend(1)?;
        Ok(match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Hir::empty(),
            HirKind::Literal(literal) => Hir::literal(escaped(&characters(literal)?)?.into_bytes()),
            HirKind::Class(class) => {
                let class = unicode(class)?;
                self.spend(class.ranges().len())?;
                let itself = Hir::class(Class::Unicode(plain(&class)));
                match letters(&class) {
                    Some(letters) => Hir::alternation(vec![itself, Hir::concat(vec![Hir::literal(*b"\\"), letters])]),
                    None => itself,
                }
            }
            HirKind::Repetition(repetition) => {
                Hir::repetition(Repetition { sub: Box::new(self.whole(&repetition.sub)?), ..repetition.clone() })
            }
            HirKind::Capture(group) if group.name.as_deref() == Some("stop") => {
                return Err(GrammarError::Grammar {
                    reason: "a group `stop` cannot be written in a JSON string".into(),
                });
            }
            HirKind::Capture(group) => self.whole(&group.sub)?,
            HirKind::Concat(parts) => Hir::concat(self.wholes(parts)?),
            HirKind::Alternation(options) => Hir::alternation(self.wholes(options)?),
        })
    }

    fn wholes(&mut self, all: &[Hir]) -> Result<Vec<Hir>, GrammarError> {
        all.iter().map(|one| self.whole(one)).collect()
    }

    /// What is left of it after a backslash.
    fn rest(&mut self, hir: &Hir) -> Result<Option<Hir>, GrammarError> {
        self.spend(1)?;
        Ok(match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => None,
            HirKind::Literal(literal) => {
                let text = escaped(&characters(literal)?)?;
                text.strip_prefix('\\').map(|rest| Hir::literal(rest.as_bytes()))
            }
            HirKind::Class(class) => letters(&unicode(class)?),
            HirKind::Repetition(repetition) => match self.rest(&repetition.sub)? {
                Some(first) if repetition.max != Some(0) => {
                    let after = Repetition {
                        min: repetition.min.saturating_sub(1),
                        max: repetition.max.map(|max| max.saturating_sub(1)),
                        greedy: repetition.greedy,
                        sub: Box::new(self.whole(&repetition.sub)?),
                    };
                    Some(Hir::concat(vec![first, Hir::repetition(after)]))
                }
                _ => None,
            },
            HirKind::Capture(group) => self.rest(&group.sub)?,
            HirKind::Concat(parts) => {
                let mut options = vec![];
                for (at, part) in parts.iter().enumerate() {
                    if let Some(first) = self.rest(part)? {
                        let mut whole = self.wholes(&parts[at + 1..])?;
                        whole.insert(0, first);
                        options.push(Hir::concat(whole));
                    }
                    if !may_be_empty(part) {
                        break;
                    }
                }
                if options.is_empty() { None } else { Some(Hir::alternation(options)) }
            }
            HirKind::Alternation(options) => {
                let mut rests = vec![];
                for option in options {
                    rests.extend(self.rest(option)?);
                }
                if rests.is_empty() { None } else { Some(Hir::alternation(rests)) }
            }
        })
    }

    /// Writes the kinds of all parts that a text can have.
    fn rules(&mut self, nodes: &[Node], start: usize) -> Result<(), GrammarError> {
        let all = possible(nodes);
        let possible = |node: usize, from: usize, to: usize| all[node][from][to];
        let starts = if self.definitions.ignored.is_empty() {
            vec![(start, PLAIN, PLAIN)]
        } else {
            vec![(start, NOTHING, NOTHING), (start, NOTHING, PLAIN)]
        };
        let mut queue: Vec<_> = starts.into_iter().filter(|of| possible(of.0, of.1, of.2)).collect();
        if queue.is_empty() {
            return Err(GrammarError::Grammar { reason: "no text fits it".into() });
        }
        let begin = self.out.len();
        let starts: Vec<String> = queue.iter().map(|of| kind(of.0, of.1, of.2)).collect();
        writeln!(self.out, "start: {}", starts.join(" | ")).expect("a string grows");
        let mut seen: HashSet<_> = queue.iter().copied().collect();
        while let Some((node, from, to)) = queue.pop() {
            let mut used = vec![];
            let mut pairs = |first: usize, second: usize, options: &mut Vec<String>| {
                for between in [PLAIN, BACKSLASH, NOTHING] {
                    if possible(first, from, between) && possible(second, between, to) {
                        options.push(format!("{} {}", kind(first, from, between), kind(second, between, to)));
                        used.extend([(first, from, between), (second, between, to)]);
                    }
                }
            };
            let mut options = vec![];
            match &nodes[node] {
                Node::Empty => options.push(quoted("")),
                Node::Terminal(terminal) => {
                    let body = if from == BACKSLASH { terminal.rest.as_ref() } else { Some(&terminal.whole) };
                    if let Some(body) = body {
                        let name = kind(node, from, to).to_uppercase();
                        let after = if to == BACKSLASH { r#" "\\""# } else { "" };
                        writeln!(self.out, "{name}: ( {body} ){after}").expect("a string grows");
                        options.push(name);
                    }
                    // The backslash that has been taken belongs to what follows.
                    if from == BACKSLASH && to == BACKSLASH && terminal.may_be_empty {
                        options.push(quoted(""));
                    }
                }
                Node::After(_, part) if from == NOTHING => {
                    options.push(kind(*part, from, to));
                    used.push((*part, from, to));
                }
                Node::After(before, part) => pairs(*before, *part, &mut options),
                Node::Pair(first, second) => pairs(*first, *second, &mut options),
                Node::Choice(all) => {
                    for &option in all {
                        if possible(option, from, to) {
                            options.push(kind(option, from, to));
                            used.push((option, from, to));
                        }
                    }
                }
                Node::Many(one) => {
                    if from == to {
                        options.push(quoted(""));
                    }
                    pairs(node, *one, &mut options);
                }
            }
            writeln!(self.out, "{}: {}", kind(node, from, to), options.join(" | ")).expect("a string grows");
            queue.extend(used.into_iter().filter(|kind| seen.insert(*kind)));
        }
        self.spend(self.out.len() - begin)
    }
}

/// The name of a kind of a part.
fn kind(node: usize, from: usize, to: usize) -> String {
    format!("n{node}_{from}{to}")
}

/// Which kinds of each part have a text.
fn possible(nodes: &[Node]) -> Vec<Kinds> {
    let states = [PLAIN, BACKSLASH, NOTHING];
    let mut users = vec![vec![]; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        match node {
            Node::Empty | Node::Terminal(_) => {}
            Node::After(first, second) | Node::Pair(first, second) => {
                users[*first].push(at);
                users[*second].push(at);
            }
            Node::Choice(options) => options.iter().for_each(|option| users[*option].push(at)),
            Node::Many(one) => {
                users[*one].push(at);
                users[at].push(at);
            }
        }
    }
    let mut all = vec![Kinds::default(); nodes.len()];
    let mut queue: VecDeque<usize> = (0..nodes.len()).collect();
    let mut is_queued = vec![true; nodes.len()];
    while let Some(at) = queue.pop_front() {
        is_queued[at] = false;
        let mut now = Kinds::default();
        for (from, to) in states.into_iter().flat_map(|from| states.map(|to| (from, to))) {
            let pair = |first: usize, second: usize| {
                states.iter().any(|&between| all[first][from][between] && all[second][between][to])
            };
            now[from][to] = match &nodes[at] {
                Node::Empty => from == to,
                Node::Terminal(_) if to == NOTHING => false,
                Node::Terminal(terminal) => {
                    from != BACKSLASH || terminal.rest.is_some() || (to == BACKSLASH && terminal.may_be_empty)
                }
                Node::After(_, part) if from == NOTHING => all[*part][from][to],
                Node::After(first, second) | Node::Pair(first, second) => pair(*first, *second),
                Node::Choice(options) => options.iter().any(|&option| all[option][from][to]),
                Node::Many(one) => from == to || pair(at, *one),
            };
        }
        if now != all[at] {
            all[at] = now;
            queue.extend(users[at].iter().filter(|&&user| !std::mem::replace(&mut is_queued[user], true)));
        }
    }
    all
}

/// The rules as nodes.
struct Rules<'w, 'a> {
    writer: &'w mut Writer<'a>,
    nodes: Vec<Node>,
    /// The node of each rule.
    names: HashMap<&'a str, usize>,
    /// What may stand between terminals.
    ignored: Option<usize>,
}

impl<'a> Rules<'_, 'a> {
    /// Reads all rules, and returns the node of the first.
    fn all(&mut self) -> Result<usize, GrammarError> {
        let definitions = self.writer.definitions;
        if !definitions.ignored.is_empty() {
            let one = self.writer.choice(&definitions.ignored, 0)?;
            let many = Terminal {
                whole: format!("( {} )+", one.whole),
                rest: one.rest.as_ref().map(|rest| format!("( {rest} ( {} )* )", one.whole)),
                may_be_empty: one.may_be_empty,
            };
            let many = self.add(Node::Terminal(many))?;
            let none = self.add(Node::Empty)?;
            self.ignored = Some(self.add(Node::Choice(vec![none, many]))?);
        }
        for name in definitions.rules.keys() {
            let node = self.add(Node::Empty)?;
            self.names.insert(name, node);
        }
        for (name, tree) in &definitions.rules {
            let body = self.node(tree)?;
            let node = self.names[name.as_str()];
            self.nodes[node] = Node::Choice(vec![body]);
        }
        let missing = || GrammarError::Grammar { reason: "there is no rule `start`".into() };
        self.names.get("start").copied().ok_or_else(missing)
    }

    fn add(&mut self, node: Node) -> Result<usize, GrammarError> {
        if self.nodes.len() == MAX_NODES {
            return Err(GrammarError::Grammar { reason: format!("its rules have more than {MAX_NODES} parts") });
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    fn node(&mut self, tree: &'a Tree) -> Result<usize, GrammarError> {
        match tree {
            Tree::Name { name, .. } if self.names.contains_key(name.as_str()) => Ok(self.names[name.as_str()]),
            Tree::Text(text) if text.is_empty() => self.add(Node::Empty),
            Tree::Name { .. } | Tree::Text(_) | Tree::Regex(_) => {
                let terminal = self.writer.terminal(tree, 0)?;
                let terminal = self.add(Node::Terminal(terminal))?;
                match self.ignored {
                    Some(ignored) => self.add(Node::After(ignored, terminal)),
                    None => Ok(terminal),
                }
            }
            Tree::Sequence(parts) => {
                let parts: Vec<usize> = parts.iter().map(|part| self.node(part)).collect::<Result<_, _>>()?;
                self.sequence(&parts)
            }
            Tree::Choice(options) => {
                let options = options.iter().map(|option| self.node(option)).collect::<Result<_, _>>()?;
                self.add(Node::Choice(options))
            }
            Tree::Both { line, .. } => Err(error(*line, "`&` is supported only in terminals")),
            Tree::Repeat { of, min, max, line } => {
                let one = self.node(of)?;
                if max.unwrap_or(*min) > 1000 {
                    return Err(error(*line, "rules repeat at most 1000 times, or without a limit"));
                }
                let mut parts = vec![];
                if max.is_none() {
                    parts.push(self.add(Node::Many(one))?);
                }
                parts.extend(vec![one; *min]);
                let none = self.add(Node::Empty)?;
                let mut more = none;
                for _ in *min..max.unwrap_or(*min) {
                    let pair = self.add(Node::Pair(one, more))?;
                    more = self.add(Node::Choice(vec![none, pair]))?;
                }
                parts.push(more);
                self.sequence(&parts)
            }
        }
    }

    fn sequence(&mut self, parts: &[usize]) -> Result<usize, GrammarError> {
        let Some((&first, others)) = parts.split_first() else { return self.add(Node::Empty) };
        others.iter().try_fold(first, |before, &part| self.add(Node::Pair(before, part)))
    }
}

fn text_terminal(text: &str) -> Result<Terminal, GrammarError> {
    let text_in_json = escaped(text)?;
    let rest = text_in_json.strip_prefix('\\').map(quoted);
    Ok(Terminal { whole: quoted(&text_in_json), rest, may_be_empty: text.is_empty() })
}

/// How a text is written.
fn escaped(text: &str) -> Result<String, GrammarError> {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match ESCAPES.iter().find(|(from, _)| *from == c) {
            Some((_, letter)) => out.extend(['\\', *letter]),
            None if c < ' ' => {
                let reason = format!("the control character U+{:04X} cannot be written in a JSON string", u32::from(c));
                return Err(GrammarError::Grammar { reason });
            }
            None => out.push(c),
        }
    }
    Ok(out)
}

fn characters(literal: &Literal) -> Result<String, GrammarError> {
    String::from_utf8(literal.0.to_vec()).map_err(|_| GrammarError::Grammar { reason: "it is not UTF-8".into() })
}

fn unicode(class: &Class) -> Result<ClassUnicode, GrammarError> {
    match class {
        Class::Unicode(class) => Ok(class.clone()),
        Class::Bytes(bytes) => {
            bytes.to_unicode_class().ok_or_else(|| GrammarError::Grammar { reason: "it is not UTF-8".into() })
        }
    }
}

/// The characters of a class that are written as themselves.
fn plain(class: &ClassUnicode) -> ClassUnicode {
    let mut plain = class.clone();
    let one = |c: char| ClassUnicodeRange::new(c, c);
    plain.difference(&ClassUnicode::new([ClassUnicodeRange::new('\0', '\u{1f}'), one('"'), one('\\')]));
    plain
}

/// The letters that stand after a backslash for the others.
fn letters(class: &ClassUnicode) -> Option<Hir> {
    let has = |c: char| class.iter().any(|range| (range.start()..=range.end()).contains(&c));
    let letters = ESCAPES.iter().filter(|(c, _)| has(*c)).map(|(_, letter)| ClassUnicodeRange::new(*letter, *letter));
    let letters = ClassUnicode::new(letters);
    (!letters.ranges().is_empty()).then(|| Hir::class(Class::Unicode(letters)))
}

fn may_be_empty(hir: &Hir) -> bool {
    hir.properties().minimum_len() == Some(0)
}

fn regex(hir: &Hir) -> String {
    let text = hir.to_string();
    if text.is_empty() { quoted("") } else { format!("/{}/", regex_to_lark(&text, "")) }
}

fn joined<'s>(parts: impl Iterator<Item = &'s String>, between: &str) -> String {
    let parts: Vec<&str> = parts.map(String::as_str).collect();
    if parts.is_empty() { quoted("") } else { format!("( {} )", parts.join(between)) }
}
