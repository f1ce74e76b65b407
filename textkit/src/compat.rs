//! Filters and tests where the engine's own differ from Jinja's: lazy results are generators, bool is
//! a number, None cannot be iterated, and what Jinja does not have is not there.

use crate::plain::SAID;
use crate::python::invalid;
use minijinja::value::{
    Enumerator, Kwargs, Object, ObjectRepr, Rest, Value, ValueKind, ValueOrKwargs,
};
use minijinja::{filters, Environment, Error, State};
use std::sync::{Arc, Mutex};

type Outcome = Result<Value, Error>;

/// What lazy filters and the views of dicts give. A generator can be walked once, is always true and has
/// no length; a view is like a list, but is none for JSON.
#[derive(Debug)]
pub struct Lazy {
    values: Mutex<Option<Arc<Vec<Value>>>>,
    is_generator: bool,
}

impl Object for Lazy {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let values = match self.values.lock() {
            Ok(mut values) if self.is_generator => values.take(),
            Ok(values) => values.clone(),
            Err(_) => None,
        };
        let values = values.unwrap_or_default();
        Enumerator::Iter(Box::new((0..values.len()).map(move |index| values[index].clone())))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        match self.is_generator {
            true => None,
            false => self.values.lock().ok()?.as_ref().map(|values| values.len()),
        }
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.is_generator || self.enumerator_len() != Some(0)
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values = match self.values.lock() {
            Ok(values) if !self.is_generator => values.clone().unwrap_or_default(),
            _ => return f.write_str("<generator object>"),
        };
        write!(f, "dict_view({})", Value::from(values.as_ref().clone()))
    }
}

fn lazy(values: Vec<Value>, is_generator: bool) -> Value {
    Value::from_object(Lazy { values: Mutex::new(Some(Arc::new(values))), is_generator })
}

fn generator(values: Vec<Value>) -> Value {
    lazy(values, true)
}

/// dict.keys(), .values() and .items().
pub fn view(values: Vec<Value>) -> Value {
    lazy(values, false)
}

/// A list to Python: also the sum of two lists, which the engine keeps as an iterable.
pub fn is_list(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq => true,
        ValueKind::Iterable => {
            value.len().is_some() && value.downcast_object_ref::<Lazy>().is_none()
        }
        _ => false,
    }
}

fn collected(value: Value) -> Result<Vec<Value>, Error> {
    Ok(iterated(value)?.try_iter()?.collect())
}

/// Python refuses to iterate None.
pub fn iterated(value: Value) -> Outcome {
    match value.is_none() {
        true => Err(invalid("'NoneType' object is not iterable")),
        false => Ok(value),
    }
}

const MAX_NESTING: usize = 100;

/// A value may be kept if it does not nest too deeply.
pub fn stored(value: Value, _namespace: Option<Value>) -> Outcome {
    match nests_deeper_than(&value, MAX_NESTING) {
        true => {
            Err(invalid(format!("a value nests more than {MAX_NESTING} lists or objects deep")))
        }
        false => Ok(value),
    }
}

fn nests_deeper_than(value: &Value, limit: usize) -> bool {
    if let Some(lazy) = value.downcast_object_ref::<Lazy>() {
        let values = lazy.values.lock();
        let values = values.as_ref().ok().and_then(|values| values.as_ref());
        return limit == 0
            || values
                .is_some_and(|list| list.iter().any(|item| nests_deeper_than(item, limit - 1)));
    }
    if !is_list(value) && value.kind() != ValueKind::Map {
        return false;
    }
    let Some(object) = value.as_object().filter(|_| limit > 0) else {
        return limit == 0;
    };
    let mut parts = object.try_iter_pairs().into_iter().flatten();
    parts.any(|(_, item)| nests_deeper_than(&item, limit - 1))
}

pub fn install(environment: &mut Environment<'static>) {
    for name in ["split", "lines", "chain", "zip", "bool"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
    install_lazy_filters(environment);
    install_filters(environment);
    install_missing(environment);
    install_tests(environment);
    environment.add_function("_plus", plus);
}

type Values = Rest<ValueOrKwargs>;

fn install_lazy_filters(environment: &mut Environment<'static>) {
    // The engine's filters are reached by their names in an environment of their own.
    for name in ["map", "select", "reject", "selectattr", "rejectattr", "unique", "batch", "slice"]
    {
        environment.add_filter(
            name,
            move |state: &mut State, value: Value, rest: Values| -> Outcome {
                let skips_empty = !matches!(name, "unique" | "batch" | "slice");
                if skips_empty && !value.is_true() {
                    return Ok(generator(Vec::new()));
                }
                let mut arguments = vec![iterated(value)?];
                arguments.extend(rest.into_values());
                // Sizes come from the template: a list of a billion empty columns is an attack.
                if matches!(name, "batch" | "slice") && arguments.get(1).is_some_and(is_huge) {
                    return Err(invalid(format!("{name}: the count is too large")));
                }
                collected(builtin(name).call(state, &arguments)?).map(generator)
            },
        );
    }
    environment.add_filter("items", |value: Value| -> Outcome {
        match value.kind() {
            ValueKind::Undefined => Ok(generator(Vec::new())),
            ValueKind::Map => collected(filters::items(&value)?).map(generator),
            _ => Err(invalid("Can only get item pairs from a mapping.")),
        }
    });
    environment.add_filter("reverse", |value: Value| -> Outcome {
        match value.kind() {
            ValueKind::String => filters::reverse(&value),
            _ => collected(filters::reverse(&iterated(value)?)?).map(generator),
        }
    });
}

fn is_huge(value: &Value) -> bool {
    value.as_i64().is_some_and(|count| count > 100_000)
}

fn builtin(name: &str) -> Value {
    match name {
        "map" => Value::from_function(filters::map),
        "select" => Value::from_function(filters::select),
        "reject" => Value::from_function(filters::reject),
        "selectattr" => Value::from_function(filters::selectattr),
        "rejectattr" => Value::from_function(filters::rejectattr),
        "unique" => Value::from_function(filters::unique),
        "batch" => Value::from_function(filters::batch),
        _ => Value::from_function(filters::slice),
    }
}

fn install_filters(environment: &mut Environment<'static>) {
    for name in ["list", "sort", "sum", "min", "max", "first", "last", "join"] {
        environment.add_filter(
            name,
            move |state: &mut State, value: Value, rest: Values| -> Outcome {
                let function = match name {
                    "list" => Value::from_function(filters::list),
                    "sort" => Value::from_function(filters::sort),
                    "sum" => Value::from_function(filters::sum),
                    "min" => Value::from_function(filters::min),
                    "max" => Value::from_function(filters::max),
                    "first" => Value::from_function(filters::first),
                    "last" => Value::from_function(filters::last),
                    _ => Value::from_function(filters::join),
                };
                let mut arguments = vec![iterated(value)?];
                arguments.extend(rest.into_values());
                function.call(state, &arguments)
            },
        );
    }
    environment.add_filter("trim", |state: &mut State, value: Value, rest: Values| -> Outcome {
        let said = value.as_str().and_then(|text| text.strip_prefix(SAID)).map(Value::from);
        let mut arguments = vec![said.unwrap_or(value)];
        arguments.extend(rest.into_values());
        Value::from_function(filters::trim).call(state, &arguments)
    });
    environment.add_filter("indent", |state: &mut State, value: Value, rest: Values| -> Outcome {
        if rest.0.iter().any(|value| is_huge(value)) {
            return Err(invalid("indent: the width is too large"));
        }
        let mut arguments = vec![value];
        arguments.extend(rest.into_values());
        Value::from_function(filters::indent).call(state, &arguments)
    });
}

/// What Jinja has and the engine has not, or otherwise.
fn install_missing(environment: &mut Environment<'static>) {
    environment.add_filter(
        "int",
        |value: &Value, default: Option<i64>, base: Option<u32>, kwargs: Kwargs| -> Outcome {
            let base: Option<u32> = base.or(kwargs.get("base")?);
            let default = default.or(kwargs.get("default")?).unwrap_or(0);
            kwargs.assert_all_used()?;
            let text = value.as_str().map(str::trim);
            let parsed = match (text, base) {
                (Some(text), Some(base)) if (2..=36).contains(&base) => {
                    i64::from_str_radix(without_prefix(text, base), base).ok()
                }
                (Some(text), _) => {
                    text.parse().ok().or_else(|| Some(text.parse::<f64>().ok()? as i64))
                }
                (None, _) if value.is_integer() => return Ok(value.clone()),
                (None, _) => f64::try_from(value.clone()).ok().map(|number| number as i64),
            };
            Ok(Value::from(parsed.unwrap_or(default)))
        },
    );
    environment.add_filter(
        "float",
        |value: &Value, default: Option<f64>, kwargs: Kwargs| -> Outcome {
            let default = default.or(kwargs.get("default")?).unwrap_or(0.0);
            kwargs.assert_all_used()?;
            let parsed = match value.as_str() {
                Some(text) => text.trim().parse().ok(),
                None => f64::try_from(value.clone()).ok(),
            };
            Ok(Value::from(parsed.unwrap_or(default)))
        },
    );
    for name in ["default", "d"] {
        environment.add_filter(
            name,
            |value: Value,
             other: Option<Value>,
             boolean: Option<bool>,
             kwargs: Kwargs|
             -> Outcome {
                let other = other.or(kwargs.get("default_value")?).unwrap_or(Value::from(""));
                let boolean = boolean.or(kwargs.get("boolean")?).unwrap_or(false);
                kwargs.assert_all_used()?;
                let is_used = value.is_undefined() || (boolean && !value.is_true());
                Ok(if is_used { other } else { value })
            },
        );
    }
    environment.add_filter(
        "replace",
        |value: &Value, old: &Value, new: &Value, count: Option<usize>| -> Outcome {
            let (text, old, new) = (value.to_string(), old.to_string(), new.to_string());
            Ok(Value::from(text.replacen(&old, &new, count.unwrap_or(usize::MAX))))
        },
    );
    // As markupsafe writes it, which leaves "/" alone.
    for name in ["e", "escape", "forceescape"] {
        environment.add_filter(name, move |value: Value| match value.is_safe() {
            true if name != "forceescape" => value,
            _ => Value::from_safe_string(escaped(&value.to_string())),
        });
    }
    for name in ["length", "count"] {
        environment.add_filter(name, |value: &Value| -> Outcome {
            match value.is_undefined() {
                true => Ok(Value::from(0)),
                false => filters::length(value).map(Value::from),
            }
        });
    }
    environment.add_filter("wordcount", |text: &str| text.split_whitespace().count());
    environment
        .add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
}

/// Python takes "0x1F" with base 16 for 1F.
fn without_prefix(text: &str, base: u32) -> &str {
    let prefixes = match base {
        16 => ["0x", "0X"],
        8 => ["0o", "0O"],
        2 => ["0b", "0B"],
        _ => return text,
    };
    prefixes.into_iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text)
}

fn install_tests(environment: &mut Environment<'static>) {
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: &Value| {
        is_list(value)
            || matches!(value.kind(), ValueKind::String | ValueKind::Map | ValueKind::Undefined)
    });
    environment.add_test("number", |value: &Value| {
        matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
    });
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
}

/// `a + b + ...` where some parts are marked safe: markup escapes whatever plain text joins it.
fn plus(parts: Rest<Value>) -> Outcome {
    let mut parts = parts.0.into_iter();
    let mut sum = parts.next().unwrap_or_default();
    for part in parts {
        let (Some(left), Some(right)) = (sum.as_str(), part.as_str()) else {
            return Err(invalid(format!(
                "unsupported operand types for +: {} and {}",
                sum.kind(),
                part.kind()
            )));
        };
        sum = match (sum.is_safe(), part.is_safe()) {
            (false, false) => Value::from([left, right].concat()),
            (true, true) => Value::from_safe_string([left, right].concat()),
            (true, false) => Value::from_safe_string([left, &escaped(right)].concat()),
            (false, true) => Value::from_safe_string([&escaped(left), right].concat()),
        };
    }
    Ok(sum)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
