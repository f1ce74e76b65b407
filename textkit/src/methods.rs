//! Methods of Python's values that templates call and the engine lacks or does otherwise.

use crate::compat;
use crate::plain::SAID;
use crate::python::invalid;
use minijinja::value::{from_args, Kwargs, Tuple, Value, ValueKind};
use minijinja::{Error, State};

type Outcome = Result<Value, Error>;

/// Padding to more than this is an attack.
const MAX_WIDTH: usize = 1 << 20;

/// What str.strip removes.
pub fn is_python_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Outcome {
    let own = match value.kind() {
        ValueKind::String => text_method(value.as_str().unwrap_or_default(), method, args),
        ValueKind::Map => map_method(value, method, args),
        ValueKind::Seq | ValueKind::Iterable => list_method(value, method, args),
        _ => Ok(None),
    };
    match own? {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn text_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "strip" | "lstrip" | "rstrip" => {
            let (set,): (Option<&str>,) = from_args(args)?;
            let is_cut = |c: char| set.map_or_else(|| is_python_space(c), |set| set.contains(c));
            // What stood before may have left the second half of its sign (crate::plain).
            let is_cut_before = |c: char| c == SAID || is_cut(c);
            let text =
                if method == "rstrip" { text } else { text.trim_start_matches(is_cut_before) };
            let text = if method == "lstrip" { text } else { text.trim_end_matches(is_cut) };
            Value::from(text)
        }
        "split" | "rsplit" => split(text, method == "rsplit", args)?,
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            partition(text, separator, method == "rpartition")?
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let found = if method == "index" { text.find(part) } else { text.rfind(part) };
            let at = found.ok_or_else(|| invalid("substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        "casefold" => {
            let () = from_args(args)?;
            Value::from(text.to_lowercase())
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(title(text))
        }
        "swapcase" => {
            let () = from_args(args)?;
            Value::from(swapped_case(text))
        }
        "istitle" => {
            let () = from_args(args)?;
            Value::from(text.chars().any(char::is_uppercase) && title(text) == text)
        }
        "ljust" | "rjust" | "center" | "zfill" => pad(text, method, args)?,
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn split(text: &str, from_end: bool, args: &[Value]) -> Outcome {
    let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(kwargs.get("sep")?).filter(|value| !value.is_none());
    let limit = limit.or(kwargs.get("maxsplit")?).unwrap_or(-1);
    kwargs.assert_all_used()?;
    let max_parts = usize::try_from(limit).map_or(usize::MAX, |limit| limit.saturating_add(1));
    let Some(separator) = separator else {
        return Ok(Value::from(split_blanks(text, from_end, max_parts)));
    };
    let separator = separator.as_str().ok_or_else(|| invalid("must be str or None"))?;
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let parts: Vec<&str> = if from_end {
        let mut parts: Vec<&str> = text.rsplitn(max_parts, separator).collect();
        parts.reverse();
        parts
    } else {
        text.splitn(max_parts, separator).collect()
    };
    Ok(parts.into_iter().map(Value::from).collect::<Vec<Value>>().into())
}

/// Words, without empty ones; what is left beyond the limit stays in one piece.
fn split_blanks(text: &str, from_end: bool, max_parts: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text.trim_matches(is_python_space);
    while !rest.is_empty() {
        let cut = if from_end { rest.rfind(is_python_space) } else { rest.find(is_python_space) };
        let Some(cut) = cut.filter(|_| parts.len() + 1 < max_parts) else {
            parts.push(rest.to_string());
            break;
        };
        let width = rest[cut..].chars().next().map_or(1, char::len_utf8);
        let (left, right) = (&rest[..cut], &rest[cut + width..]);
        if from_end {
            parts.push(right.to_string());
            rest = left.trim_end_matches(is_python_space);
        } else {
            parts.push(left.to_string());
            rest = right.trim_start_matches(is_python_space);
        }
    }
    if from_end {
        parts.reverse();
    }
    parts
}

fn partition(text: &str, separator: &str, from_end: bool) -> Outcome {
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let found = if from_end { text.rsplit_once(separator) } else { text.split_once(separator) };
    let parts = match (found, from_end) {
        (Some((left, right)), _) => [left, separator, right],
        (None, false) => [text, "", ""],
        (None, true) => ["", "", text],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from).to_vec())))
}

fn swapped_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_uppercase() {
            true => out.extend(c.to_lowercase()),
            false => out.extend(c.to_uppercase()),
        }
    }
    out
}

/// A letter behind anything but a letter is made a capital, the others small.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        let is_cased = c.is_lowercase() || c.is_uppercase();
        match (in_word, c) {
            (true, c) => out.extend(c.to_lowercase()),
            (false, 'ß') => out.push_str("Ss"),
            (false, c) => out.extend(c.to_uppercase()),
        }
        in_word = is_cased;
    }
    out
}

fn pad(text: &str, method: &str, args: &[Value]) -> Outcome {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    if width > MAX_WIDTH {
        return Err(invalid(format!("{method}: the width is too large")));
    }
    let missing = width.saturating_sub(text.chars().count());
    let fill = fill.unwrap_or(" ");
    let blanks = |count: usize| fill.repeat(count);
    let padded = match method {
        "ljust" => format!("{text}{}", blanks(missing)),
        "rjust" => format!("{}{text}", blanks(missing)),
        "zfill" => {
            let sign = usize::from(text.starts_with(['+', '-']));
            format!("{}{}{}", &text[..sign], "0".repeat(missing), &text[sign..])
        }
        _ => {
            // Python puts the odd blank on the left only if the width is odd.
            let left = missing / 2 + (missing & width & 1);
            format!("{}{text}{}", blanks(left), blanks(missing - left))
        }
    };
    Ok(Value::from(padded))
}

fn map_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let Some(object) = value.as_object() else { return Ok(None) };
    let pairs = || object.try_iter_pairs().into_iter().flatten();
    let result = match method {
        "keys" => compat::view(pairs().map(|(key, _)| key).collect()),
        "values" => compat::view(pairs().map(|(_, item)| item).collect()),
        "items" => compat::view(
            pairs().map(|(key, item)| Value::from(Tuple::from(vec![key, item]))).collect(),
        ),
        "copy" => value.clone(),
        _ => return Ok(None),
    };
    let () = from_args(args)?;
    Ok(Some(result))
}

fn list_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            let found = value.try_iter()?.position(|item| item == *wanted);
            Ok(Some(Value::from(found.ok_or_else(|| invalid("the value is not in the list"))?)))
        }
        "count" => {
            let (wanted,): (&Value,) = from_args(args)?;
            Ok(Some(Value::from(value.try_iter()?.filter(|item| item == wanted).count())))
        }
        "copy" => {
            let () = from_args(args)?;
            Ok(Some(value.clone()))
        }
        _ => Ok(None),
    }
}
