//! Chat templates: the Jinja that transformers renders, with its extensions and its limits.

use crate::compat;
use crate::error::{Error, Result};
use crate::plain::Plain;
use crate::python::{self, JsonStyle, Time};
use crate::sandbox::Limited;
use crate::source;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Serde, Value};
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value as Json};
use std::cell::Cell;

const FUEL: u64 = 50_000_000;
const MAX_OUTPUT_BYTES: usize = 16 << 20;
const RECURSION_LIMIT: usize = 200;
const NAME: &str = "chat_template";
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

thread_local! {
    /// The time strftime_now tells during a render on this thread.
    static NOW: Cell<Option<Time>> = const { Cell::new(None) };
}

/// What a template said with raise_exception.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub struct Template {
    environment: Environment<'static>,
    source: String,
    special_tokens: Map<String, Json>,
    /// Content is plain text; None: it may spell special tokens.
    plain: Option<Plain>,
}

impl Template {
    pub fn new(source: &str, special_tokens_json: &str, plain_json: &str) -> Result<Self> {
        let mut special_tokens = match special_tokens_json {
            "" => Map::new(),
            json => object(json, "the special tokens")?,
        };
        source::check_size(source)?;
        let plain = Plain::new(plain_json, source, &special_tokens)?;
        let mut prepared = source::prepare(source);
        if let Some(plain) = &plain {
            plain.sign_values(&mut special_tokens);
            prepared = source::prepare(&plain.signed_source(source));
        }
        let _limited = Limited::template(source.len());
        let mut environment = Environment::new();
        configure(&mut environment)?;
        environment.add_template_owned(NAME, prepared).map_err(|error| {
            Error::invalid(describe("the chat template does not parse", &error))
        })?;
        Ok(Self { environment, source: source.to_string(), special_tokens, plain })
    }

    pub fn render(&self, options_json: &str, now: &str) -> Result<String> {
        let input = Limited::input();
        let mut options = object(options_json, "the template options")?;
        if let Some(plain) = &self.plain {
            plain.prepare(&mut options);
        }
        drop(input);
        let rendered = self.render_values(options, options_json.len(), now);
        match (&self.plain, rendered) {
            (Some(plain), Ok(text)) => Ok(plain.finish(&text)),
            (Some(plain), Err(error)) => Err(error.map_text(|text| plain.visible(text))),
            (None, rendered) => rendered,
        }
    }

    fn render_values(
        &self,
        mut options: Map<String, Json>,
        size: usize,
        now: &str,
    ) -> Result<String> {
        let input = Limited::input();
        let time = Time::parse(now).ok_or_else(|| {
            Error::invalid(format!("the time {now:?} is not like 2026-01-02T03:04:05"))
        })?;
        let continued = prepare_options(&mut options, &self.source)?;
        for (name, token) in &self.special_tokens {
            options.entry(name.clone()).or_insert_with(|| token.clone());
        }
        NOW.set(Some(time));
        let template = self.environment.get_template(NAME).map_err(|error| failure(&error))?;
        let values = Value::from(Serde(&options));
        drop(input);
        let mut output = Bounded { limit: MAX_OUTPUT_BYTES + 2 * size, ..Bounded::default() };
        let limited = Limited::template(size);
        let rendered = template.render_captured_to(values, &mut output).map(drop);
        drop(limited);
        rendered.map_err(|error| output.failure().unwrap_or_else(|| failure(&error)))?;
        let text = String::from_utf8(output.bytes)
            .map_err(|_| Error::internal("the chat template wrote bytes that are not UTF-8"))?;
        match continued {
            Some(message) => cut_after(text, &message),
            None => Ok(text),
        }
    }
}

/// Output up to a limit.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    is_full: bool,
}

impl Bounded {
    fn failure(&self) -> Option<Error> {
        self.is_full.then(|| {
            Error::invalid(format!("the chat template wrote more than {} bytes", self.limit))
        })
    }
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            self.is_full = true;
            return Err(std::io::Error::other("output limit"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn configure(environment: &mut Environment<'static>) -> Result<()> {
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| Error::internal(format!("the template syntax: {error}")))?;
    environment.set_syntax(syntax);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(crate::methods::call);
    environment.add_filter("tojson", tojson);
    environment.add_filter(source::STORED, compat::stored);
    environment.set_formatter(|out, state, value| match f64::try_from(value.clone()) {
        Ok(number) if value.is_number() && !value.is_integer() => {
            Ok(out.write_str(&python::float(number))?)
        }
        _ => minijinja::escape_formatter(out, state, value),
    });
    compat::install(environment);
    environment.add_filter(source::ITERATED, compat::iterated);
    environment.add_function(
        "raise_exception",
        |message: Value| -> std::result::Result<Value, minijinja::Error> {
            let text = message.to_string();
            Err(python::invalid(text.clone()).with_source(Raised(text)))
        },
    );
    environment.add_function("strftime_now", |format: &str| match NOW.get() {
        Some(time) => Ok(time.strftime(format)),
        None => Err(python::invalid("there is no time")),
    });
    Ok(())
}

fn tojson(
    value: &Value,
    args: Rest<Value>,
    kwargs: Kwargs,
) -> std::result::Result<Value, minijinja::Error> {
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let option = |index: usize| -> std::result::Result<Option<Value>, minijinja::Error> {
        match args.get(index) {
            Some(value) => Ok(Some(value.clone())),
            None => kwargs.get::<Option<Value>>(names[index]),
        }
    };
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let indent = match option(1)? {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(usize::try_from(value)?.min(64)),
        }),
    };
    let (item, key) = match option(2)? {
        Some(pair) if !pair.is_none() => {
            let parts: Vec<Value> = pair.try_iter()?.collect();
            match parts.as_slice() {
                [item, key] => (item.to_string(), key.to_string()),
                _ => return Err(python::invalid("tojson: separators must be a pair")),
            }
        }
        _ => (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string()),
    };
    let style = JsonStyle {
        ensure_ascii: is_true(option(0)?),
        indent,
        item_separator: item,
        key_separator: key,
        sort_keys: is_true(option(3)?),
    };
    kwargs.assert_all_used()?;
    python::to_json(value, &style).map(Value::from)
}

fn object(json: &str, what: &str) -> Result<Map<String, Json>> {
    match serde_json::from_str(json) {
        Ok(Json::Object(map)) => Ok(map),
        Ok(_) => Err(Error::invalid(format!("{what} must be a JSON object"))),
        Err(error) => Err(Error::invalid(format!("{what} are not valid JSON: {error}"))),
    }
}

/// The message that a render continues.
struct Continued {
    text: String,
}

/// Brings the options into the form templates get: every list is there, reasoning under all its names.
fn prepare_options(options: &mut Map<String, Json>, source: &str) -> Result<Option<Continued>> {
    for name in ["tools", "documents"] {
        options.entry(name).or_insert(Json::Null);
    }
    options.entry("add_generation_prompt").or_insert(Json::Bool(false));
    let continues = options.remove("continue_final_message").unwrap_or(Json::Bool(false));
    let messages = match options.get_mut("messages") {
        Some(Json::Array(messages)) => messages,
        _ => return Err(Error::invalid("\"messages\" must be an array of objects")),
    };
    for message in messages.iter_mut() {
        match message {
            Json::Object(fields) => alias_reasoning(fields),
            _ => return Err(Error::invalid("each of \"messages\" must be an object")),
        }
    }
    let field = match &continues {
        Json::Null | Json::Bool(false) => return Ok(None),
        Json::String(field) if !field.is_empty() => field.as_str(),
        _ => "content",
    };
    if options.get("add_generation_prompt").is_some_and(|value| *value != Json::Bool(false)) {
        return Err(Error::invalid(
            "continue_final_message and add_generation_prompt exclude each other: the first continues a message, the second begins one",
        ));
    }
    let Some(Json::Array(messages)) = options.get_mut("messages") else { return Ok(None) };
    mark_final_message(messages, field, source).map(Some)
}

fn alias_reasoning(fields: &mut Map<String, Json>) {
    let given = REASONING_FIELDS.iter().find_map(|name| fields.get(*name).filter(|v| !v.is_null()));
    let Some(reasoning) = given.cloned() else { return };
    if !fields.contains_key("thinking") {
        fields.shift_insert(0, "thinking".into(), reasoning.clone());
    }
    fields.insert("reasoning_content".into(), reasoning);
}

/// Appends a tag to the text to continue, so that it can be found in the rendered prompt.
fn mark_final_message(messages: &mut [Json], field: &str, source: &str) -> Result<Continued> {
    let last = messages
        .last_mut()
        .and_then(Json::as_object_mut)
        .ok_or_else(|| Error::invalid("continue_final_message needs a message to continue"))?;
    let absent = || {
        Error::invalid(format!(
            "continue_final_message needs text in \"{field}\" of the final message"
        ))
    };
    let text = last.get(field).filter(|value| !value.is_null()).cloned().ok_or_else(absent)?;
    let fields: Vec<&str> = match REASONING_FIELDS.contains(&field) {
        true => {
            REASONING_FIELDS.into_iter().filter(|name| last.get(*name) == Some(&text)).collect()
        }
        false => vec![field],
    };
    if !fields.iter().any(|name| source.contains(name)) {
        return Err(Error::invalid(format!(
            "the chat template does not use \"{field}\", so it cannot be continued"
        )));
    }
    match text {
        Json::String(text) => {
            for name in fields {
                last.insert(name.into(), Json::String(format!("{text}{CONTINUE_TAG}")));
            }
            Ok(Continued { text })
        }
        Json::Array(_) => {
            let parts = last.get_mut(field).and_then(Json::as_array_mut).ok_or_else(absent)?;
            let part =
                parts.iter_mut().rev().find_map(|part| part.get_mut("text")).ok_or_else(absent)?;
            let text = part.as_str().ok_or_else(absent)?.to_string();
            *part = Json::String(format!("{text}{CONTINUE_TAG}"));
            Ok(Continued { text })
        }
        _ => Err(absent()),
    }
}

fn cut_after(mut rendered: String, message: &Continued) -> Result<String> {
    let tag = CONTINUE_TAG.trim_end();
    let position =
        match rendered.rfind(tag) {
            Some(position) if rendered.contains(python_strip(&message.text)) => position,
            _ => return Err(Error::invalid(
                "the chat template drops or changes the final message, so it cannot be continued",
            )),
        };
    let keeps_spacing = rendered[position..].starts_with(CONTINUE_TAG);
    rendered.truncate(position);
    if !keeps_spacing {
        let end = rendered.trim_end_matches(crate::methods::is_python_space).len();
        rendered.truncate(end);
    }
    Ok(rendered)
}

fn python_strip(text: &str) -> &str {
    text.trim_matches(crate::methods::is_python_space)
}

/// One line: what, where, why.
fn describe(what: &str, error: &minijinja::Error) -> String {
    let line = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    let mut reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        reason = format!("{reason}: {cause}");
        source = cause.source();
    }
    format!("{what}{line}: {reason}")
}

fn failure(error: &minijinja::Error) -> Error {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(link) = cause {
        if let Some(raised) = link.downcast_ref::<Raised>() {
            return Error::invalid(raised.0.clone());
        }
        if let Some(Some(ErrorKind::OutOfFuel)) =
            link.downcast_ref::<minijinja::Error>().map(|e| Some(e.kind()))
        {
            return Error::invalid(format!(
                "the chat template ran for more than {FUEL} steps and was stopped"
            ));
        }
        cause = link.source();
    }
    Error::invalid(describe("the chat template fails", error))
}
