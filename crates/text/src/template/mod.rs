//! Chat templates: the Jinja programs that models bring along to turn messages into a prompt.
//!
//! The reference is what the Python libraries do: blocks trimmed, `tojson` as Python's `json.dumps`, Python's string and
//! dictionary methods, `raise_exception`, `strftime_now`, `{% break %}`, `{% generation %}`. A template is a program from
//! a stranger, so it runs with limits on steps, memory, depth and output.

mod date;
mod mark;
mod message;
mod python;
mod tojson;

use std::{io, sync::OnceLock};

use minijinja::{Environment, ErrorKind, Value, syntax::SyntaxConfig};
use serde::Deserialize;
use serde_json::json;

pub use self::{
    date::LocalTime,
    message::{Message, TEXT_INPUT, call_arguments},
};
use crate::{error::TextError, prompt::Prompt, tokenizer::Tokenizer};

/// Templates are a few kilobytes; the largest known one has 30.
const MAX_TEMPLATE_BYTES: usize = 128 << 10;

/// Longest `{{ ... }}` or `{% ... %}`: the engine compiles a chain of operators in quadratic time.
const MAX_TAG_BYTES: usize = 8 << 10;

/// Steps that any render may take, and steps more for the input. A step is also what 64 bytes of data cost, so this bounds
/// memory as well, except where a template adds a list to itself over and over or turns a value that holds itself many
/// times into text: those the engine does not charge for in time. Real templates take some 200 steps for a message.
const BASE_FUEL: u64 = 100_000;
const FUEL_PER_VALUE: u64 = 100;
const BYTES_PER_FUEL: u64 = 2;

/// Stack of the threads that compile and render. A byte of source can nest an expression one level deeper, a few steps a
/// value, and walking or dropping a level takes some hundred bytes of stack. Pages that are not touched cost nothing.
const BASE_STACK: usize = 8 << 20;
const STACK_PER_SOURCE_BYTE: usize = 1024;
const STACK_PER_FUEL: usize = 400;
const MAX_STACK: usize = 512 << 20;

/// Output bytes that any render may write, and bytes more for each byte of input.
const BASE_OUTPUT: usize = 1 << 20;
const OUTPUT_PER_BYTE: usize = 16;

const MAIN: &str = "chat_template";
const TOOL_USE: &str = "chat_template.tool_use";

/// A compiled chat template.
///
/// ```
/// use kapitsa_text::{ChatTemplate, Message, RenderOptions};
///
/// let template = ChatTemplate::new(
///     "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}
///      {%- if add_generation_prompt %}<|assistant|>{% endif %}",
/// )?;
/// let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
/// let prompt = template.render(&[Message::user("hi")], &options)?;
/// assert_eq!(prompt.text, "<|user|>hi\n<|assistant|>");
/// # Ok::<(), kapitsa_text::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    has_tool_use: bool,
    /// Whether arguments of a call can be text; found out when one is.
    takes_text: OnceLock<bool>,
}

/// What a template is given besides the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions<'a> {
    /// End with the opening of an assistant turn.
    pub add_generation_prompt: bool,
    /// Tool definitions, a JSON list.
    pub tools: Option<serde_json::Value>,
    /// Gives `bos_token` and `eos_token`, and says which strings in messages must not become control tokens.
    pub tokenizer: Option<&'a Tokenizer>,
    /// More variables, such as `enable_thinking`.
    pub variables: serde_json::Map<String, serde_json::Value>,
    /// What `strftime_now` shows; without it templates see no such function and write a date of their own or none.
    pub now: Option<LocalTime>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TemplateJson {
    One(String),
    Named(Vec<NamedJson>),
}

#[derive(Deserialize)]
struct NamedJson {
    name: String,
    template: String,
}

#[derive(Deserialize)]
struct Config {
    chat_template: Option<TemplateJson>,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// If it does not compile, with the line.
    pub fn new(source: &str) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        let bad = |error: minijinja::Error| TextError::TemplateSyntax { line: 0, reason: error.to_string() };
        environment.set_syntax(syntax.build().map_err(bad)?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_recursion_limit(200);
        python::install(&mut environment);
        let mut template =
            Self { environment, source: String::new(), has_tool_use: false, takes_text: OnceLock::new() };
        template.compile(MAIN, source)?;
        template.source = source.to_owned();
        Ok(template)
    }

    /// Takes the template from the text of a `tokenizer_config.json`, where it is a string or a list of named ones.
    /// `None` if there is no template.
    ///
    /// # Errors
    /// If the text is not JSON of that shape, a list has no template named `default`, or one does not compile.
    pub fn from_tokenizer_config(tokenizer_config: &str) -> Result<Option<Self>, TextError> {
        let json = |source| TextError::Json { file: "tokenizer_config.json", source };
        let config: Config = serde_json::from_str(tokenizer_config).map_err(json)?;
        match config.chat_template {
            None => Ok(None),
            Some(TemplateJson::One(source)) => Self::new(&source).map(Some),
            Some(TemplateJson::Named(list)) if list.is_empty() => Ok(None),
            Some(TemplateJson::Named(list)) => {
                let named = |name| list.iter().find(|entry| entry.name == name).map(|entry| &entry.template);
                let default = named("default").ok_or_else(|| TextError::TemplateSyntax {
                    line: 0,
                    reason: "the list of chat templates has none named `default`".to_owned(),
                })?;
                let template = Self::new(default)?;
                named("tool_use").map_or(Ok(template.clone()), |source| template.with_tool_use(source)).map(Some)
            }
        }
    }

    /// Adds a template to use in place of this one when there are tools.
    ///
    /// # Errors
    /// If it does not compile.
    pub fn with_tool_use(mut self, source: &str) -> Result<Self, TextError> {
        self.compile(TOOL_USE, source)?;
        self.has_tool_use = true;
        self.takes_text = OnceLock::new();
        self.source.push('\n');
        self.source.push_str(source);
        Ok(self)
    }

    fn compile(&mut self, name: &'static str, source: &str) -> Result<(), TextError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            let reason = format!("it has {} bytes, the limit is {MAX_TEMPLATE_BYTES}", source.len());
            return Err(TextError::TemplateSyntax { line: 0, reason });
        }
        let tag_bytes = longest_tag(source);
        if tag_bytes > MAX_TAG_BYTES {
            let reason = format!("it has a tag of {tag_bytes} bytes, the limit is {MAX_TAG_BYTES}");
            return Err(TextError::TemplateSyntax { line: 0, reason });
        }
        let compile = || {
            self.environment.add_template_owned(name, python::without_generation_tags(source)).map_err(|error| {
                TextError::TemplateSyntax { line: error.line().unwrap_or(0), reason: reason_of(&error) }
            })
        };
        on_stack(STACK_PER_SOURCE_BYTE * source.len(), compile)
    }

    /// The text of the template, both of them if there is one for tools. For
    /// [`Tokenizer::guard_template_tokens`] and for hashing.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders messages into a prompt.
    ///
    /// The same arguments always give the same bytes. Before rendering, messages are put into the one form that templates
    /// agree on: absent fields instead of null ones, `content` always there, arguments of tool calls as objects (see
    /// [`call_arguments`]; text is the object `{"input": text}` for a template that fails on text or leaves it out),
    /// `developer` as `system` where the template does not know it.
    ///
    /// # Errors
    /// If the template refuses the messages, fails on them, or runs past its limits.
    pub fn render(&self, messages: &[Message], options: &RenderOptions<'_>) -> Result<Prompt, TextError> {
        self.render_for(messages, options, &|| *self.takes_text.get_or_init(|| self.shows_text()))
    }

    /// Whether the template writes arguments of a call that are text.
    fn shows_text(&self) -> bool {
        const TEXT: &str = "text in place of an object";
        let function = json!({"name": "f", "arguments": TEXT});
        let call = json!({"id": "000000000", "type": "function", "function": function});
        let mut assistant = Message::assistant("");
        assistant.fields.insert("tool_calls".to_owned(), json!([call]));
        let mut result = Message::new("tool", "r");
        result.fields.insert("tool_call_id".to_owned(), "000000000".into());
        let schema = json!({"type": "object", "properties": {}});
        let tool = json!({"type": "function", "function": {"name": "f", "description": "f", "parameters": schema}});
        let options = RenderOptions { tools: Some(json!([tool])), ..RenderOptions::default() };
        let prompt = self.render_for(&[Message::user("q"), assistant, result], &options, &|| true);
        prompt.is_ok_and(|prompt| prompt.text.contains(TEXT))
    }

    fn render_for(
        &self,
        messages: &[Message],
        options: &RenderOptions<'_>,
        takes_text: &dyn Fn() -> bool,
    ) -> Result<Prompt, TextError> {
        let knows_developer = self.source.contains("developer");
        let mut input = mark::Marker::new(options.tokenizer);
        let mut values = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            let object = message.for_template(knows_developer, takes_text);
            // An assistant's own text may hold the markers that its template cuts it at.
            let markers = message.role != "assistant";
            let value = input.value(&serde_json::Value::Object(object), markers);
            values.push(value.map_err(|what| TextError::Message { index, what })?);
        }
        let variable = |name: &str, value: &serde_json::Value, input: &mut mark::Marker<'_>| {
            let fail = |what| TextError::TemplateRender { line: 0, reason: format!("variable `{name}`: {what}") };
            input.value(value, true).map_err(fail)
        };
        let tools = match &options.tools {
            Some(serde_json::Value::Array(tools)) if tools.is_empty() => Value::from(()),
            Some(tools) => variable("tools", tools, &mut input)?,
            None => Value::from(()),
        };
        let has_tools = !tools.is_none();
        let mut context = vec![
            ("messages".to_owned(), Value::from(values)),
            ("tools".to_owned(), tools),
            ("documents".to_owned(), Value::from(())),
            ("add_generation_prompt".to_owned(), Value::from(options.add_generation_prompt)),
        ];
        if let Some(now) = options.now {
            context.push(("strftime_now".to_owned(), Value::from_function(move |format: &str| now.strftime(format))));
        }
        if let Some(tokenizer) = options.tokenizer {
            let spelled = |id: Option<u32>| id.map(|id| Value::from(tokenizer.token_text(id)));
            context.extend(spelled(tokenizer.bos_id()).map(|bos| ("bos_token".to_owned(), bos)));
            context.extend(spelled(tokenizer.eos_id()).map(|eos| ("eos_token".to_owned(), eos)));
        }
        for (name, value) in &options.variables {
            context.push((name.clone(), variable(name, value, &mut input)?));
        }
        let name = if has_tools && self.has_tool_use { TOOL_USE } else { MAIN };
        let output = self.run(name, Value::from_pairs(context), &input)?;
        Ok(mark::unmark(output))
    }

    fn run(&self, name: &str, context: Value, input: &mark::Marker<'_>) -> Result<String, TextError> {
        let fuel = BASE_FUEL + input.values() * FUEL_PER_VALUE + input.bytes() / BYTES_PER_FUEL;
        let limit = BASE_OUTPUT + OUTPUT_PER_BYTE * input.bytes() as usize;
        let render = || {
            let mut environment = self.environment.clone();
            environment.set_fuel(Some(fuel));
            let template = environment.get_template(name).map_err(render_error)?;
            let mut output = Output { text: Vec::new(), limit, full: false };
            match template.render_captured_to(context, &mut output) {
                Ok(_) => Ok(output.text),
                Err(_) if output.full => Err(TextError::TemplateLimit { what: "output" }),
                Err(error) => Err(render_error(error)),
            }
        };
        let text = on_stack(STACK_PER_FUEL.saturating_mul(fuel as usize), render)?;
        String::from_utf8(text).map_err(|error| TextError::TemplateRender { line: 0, reason: error.to_string() })
    }
}

/// Bytes of the longest tag, taking for its end the last one before the next tag: text in quotes may hold another.
fn longest_tag(source: &str) -> usize {
    let mut opens: Vec<usize> =
        ["{{", "{%"].iter().flat_map(|open| source.match_indices(open)).map(|at| at.0).collect();
    opens.sort_unstable();
    opens.push(source.len());
    let tag = |pair: &[usize]| {
        let part = &source[pair[0]..pair[1]];
        part.rfind("}}").max(part.rfind("%}")).unwrap_or(part.len())
    };
    opens.windows(2).map(tag).max().unwrap_or(0)
}

/// Runs `work` on a thread of its own with that much stack, and some more.
fn on_stack<T: Send>(bytes: usize, work: impl FnOnce() -> Result<T, TextError> + Send) -> Result<T, TextError> {
    let thread = std::thread::Builder::new().name("chat template".to_owned());
    let thread = thread.stack_size(BASE_STACK.saturating_add(bytes).min(MAX_STACK));
    std::thread::scope(|scope| {
        let result = thread.spawn_scoped(scope, work).ok().and_then(|thread| thread.join().ok());
        result.unwrap_or(Err(TextError::TemplateLimit { what: "stack" }))
    })
}

fn reason_of(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

fn render_error(error: minijinja::Error) -> TextError {
    if let Some(reason) = python::refusal(&error) {
        return TextError::TemplateRefused { reason };
    }
    match error.kind() {
        ErrorKind::OutOfFuel => TextError::TemplateLimit { what: "step" },
        _ => TextError::TemplateRender { line: error.line().unwrap_or(0), reason: reason_of(&error) },
    }
}

/// Collects output up to a limit.
struct Output {
    text: Vec<u8>,
    limit: usize,
    full: bool,
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit - self.text.len() {
            self.full = true;
            return Err(io::Error::other("output limit"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
