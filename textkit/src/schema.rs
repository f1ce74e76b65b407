//! JSON Schema: which keywords hold an answer, and the form in which the library takes them.
//!
//! A keyword that would not be enforced is refused by name, never dropped: what is in no row of the table,
//! too. Annotations say nothing about which documents are valid.

use crate::error::{Error, Result};
use crate::grammar::check_work;
use serde_json::{json, Map, Value};
use std::collections::HashSet;

pub const MAX_ENUM: usize = 10_000;
const MAX_NESTING: usize = 32; // of schemas in schemas
const MAX_PROPERTIES: usize = 512; // of one object
const MAX_PATTERNS: usize = 64; // patternProperties of one object
const MAX_COPIED: usize = 20_000; // values, for references in oneOf
const MAX_EXACT: u64 = 1 << 53; // integers up to here are doubles, as which the library keeps numbers
/// Between two parts of a document. Bounded, so that an answer cannot be blanks for ever.
const BLANKS: &str = r"[\x20\x0A\x0D\x09]{1,48}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Schema,                // enforced; its value is a schema
    SchemaMap,             // enforced; an object of schemas
    Schemas,               // enforced; a list of schemas
    Value,                 // enforced; its value is no schema
    Note,                  // an annotation
    Refused(&'static str), // the values that ask for nothing, as a JSON list
}

use Use::{Note, Refused, Schema, SchemaMap, Schemas};

#[rustfmt::skip]
const KEYWORDS: &[(&str, Use)] = &[
    ("$ref", Use::Value), ("$defs", SchemaMap), ("definitions", SchemaMap),
    ("type", Use::Value), ("enum", Use::Value), ("const", Use::Value),
    ("anyOf", Schemas), ("oneOf", Schemas), ("allOf", Schemas),
    ("properties", SchemaMap), ("patternProperties", SchemaMap), ("additionalProperties", Schema),
    ("required", Use::Value), ("minProperties", Use::Value), ("maxProperties", Use::Value),
    ("items", Schema), ("additionalItems", Schema), ("prefixItems", Schemas),
    ("minItems", Use::Value), ("maxItems", Use::Value),
    ("minLength", Use::Value), ("maxLength", Use::Value), ("pattern", Use::Value), ("format", Use::Value),
    ("minimum", Use::Value), ("maximum", Use::Value), ("exclusiveMinimum", Use::Value),
    ("exclusiveMaximum", Use::Value), ("multipleOf", Use::Value),
    ("$schema", Note), ("$id", Note), ("id", Note), ("$anchor", Note), ("$comment", Note), ("title", Note),
    ("description", Note), ("default", Note), ("example", Note), ("examples", Note), ("readOnly", Note),
    ("writeOnly", Note), ("deprecated", Note), ("contentMediaType", Note), ("contentEncoding", Note),
    ("contentSchema", Note), ("discriminator", Note), ("externalDocs", Note), ("xml", Note),
    ("uniqueItems", Refused("[false]")), ("nullable", Refused("[false]")), ("contains", Refused("[true]")),
    ("minContains", Refused("[0]")), ("maxContains", Refused("[]")), ("not", Refused("[false]")),
    ("if", Refused("[]")), ("then", Refused("[]")), ("else", Refused("[]")),
    ("propertyNames", Refused("[true, {}]")), ("dependencies", Refused("[{}]")),
    ("dependentRequired", Refused("[{}]")), ("dependentSchemas", Refused("[{}]")),
    ("unevaluatedItems", Refused("[true]")), ("unevaluatedProperties", Refused("[true]")),
    ("$dynamicRef", Refused("[]")), ("$dynamicAnchor", Refused("[]")), ("$recursiveRef", Refused("[]")),
    ("$recursiveAnchor", Refused("[false]")), ("$vocabulary", Refused("[]")),
];

fn use_of(keyword: &str) -> Option<Use> {
    KEYWORDS.iter().find(|(each, _)| *each == keyword).map(|(_, used)| *used)
}

/// Bounds of numbers, with the sign of those that leave more numbers the further out they lie; others have none.
const BOUNDS: &[(&str, f64)] = &[
    ("minimum", -1.0),
    ("maximum", 1.0),
    ("exclusiveMinimum", -1.0),
    ("exclusiveMaximum", 1.0),
    ("multipleOf", 0.0),
];
/// Of an exclusive bound the library takes the integer beside it, which is to be exact as well.
const MAX_BOUND: u64 = MAX_EXACT - 1;

/// Formats that are enforced in strings.
const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// What the library compiles, from a schema as it was sent.
pub fn prepare(text: &str) -> Result<Value> {
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| Error::invalid(format!("it is not JSON: {error}")))?;
    prepare_value(schema)
}

pub fn prepare_value(mut schema: Value) -> Result<Value> {
    if let Value::Bool(any) = schema {
        match any {
            true => schema = json!({}),
            false => return Err(Error::invalid("the schema false allows no document")),
        }
    }
    let root = schema.clone();
    inline_options(&mut schema, &root, &mut 0);
    let mut walk = Walk { num_constants: 0, patterns: String::new(), path: String::new() };
    walk.schema(&mut schema, 0)?;
    for pattern in walk.patterns.lines() {
        check_work(pattern)?;
    }
    check_work(&walk.patterns.replace(['(', '[', ':'], ""))?;
    if let Some(object) = schema.as_object_mut() {
        object.insert("x-guidance".to_string(), json!({ "whitespace_pattern": BLANKS }));
    }
    Ok(schema)
}

struct Walk {
    num_constants: usize,
    patterns: String, // all of them
    path: String,
}

impl Walk {
    fn refused<T>(&self, reason: impl std::fmt::Display) -> Result<T> {
        let place = if self.path.is_empty() { "the schema" } else { &self.path[1..] };
        let shown: String = place.chars().take(160).collect();
        Err(Error::invalid(format!("{reason} (in {shown})")))
    }

    fn schema(&mut self, schema: &mut Value, depth: usize) -> Result<()> {
        if depth > MAX_NESTING {
            return self.refused(format!("schemas are nested more than {MAX_NESTING} deep"));
        }
        let Some(object) = schema.as_object_mut() else {
            return match schema {
                Value::Bool(_) => Ok(()),
                _ => self.refused("a schema must be an object, true or false"),
            };
        };
        self.check_reference(object)?;
        self.check_format(object)?;
        self.check_min_properties(object)?;
        let names: Vec<String> = object.keys().cloned().collect();
        for name in names {
            self.keyword(object, &name, depth)?;
        }
        Ok(())
    }

    fn keyword(&mut self, object: &mut Map<String, Value>, name: &str, depth: usize) -> Result<()> {
        let Some(value) = object.get_mut(name) else { return Ok(()) };
        match use_of(name) {
            Some(Use::Value) if name == "pattern" => {
                self.patterns.push_str(value.as_str().unwrap_or(""));
                self.patterns.push('\n');
                Ok(())
            }
            Some(Schema) if value.is_array() => self.list(value, name, depth),
            Some(Schema) => self.inside(name, |walk| walk.schema(value, depth + 1)),
            Some(SchemaMap) if name == "patternProperties" => {
                for pattern in value.as_object().into_iter().flat_map(Map::keys) {
                    self.patterns.push_str(pattern);
                    self.patterns.push('\n');
                }
                self.map(value, name, depth)
            }
            Some(SchemaMap) => self.map(value, name, depth),
            Some(Schemas) => self.list(value, name, depth),
            Some(Use::Value) => self.count_constants(name, value),
            Some(Note) => {
                object.remove(name);
                Ok(())
            }
            Some(Refused(neutral)) => {
                let values: Vec<Value> = serde_json::from_str(neutral).unwrap_or_default();
                if !values.contains(value) {
                    return self.refused(format!("the keyword {name} is not enforced here"));
                }
                object.remove(name);
                Ok(())
            }
            None if name.starts_with("x-") && name != "x-guidance" => {
                object.remove(name);
                Ok(())
            }
            None => {
                let shown: String = name.chars().take(80).collect();
                self.refused(format!("the keyword {shown:?} is not known here"))
            }
        }
    }

    fn inside(&mut self, name: &str, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let length = self.path.len();
        self.path.push('.');
        self.path.push_str(name);
        body(self)?;
        self.path.truncate(length);
        Ok(())
    }

    fn map(&mut self, value: &mut Value, name: &str, depth: usize) -> Result<()> {
        let Some(entries) = value.as_object_mut() else {
            return self.refused(format!("{name} must be an object"));
        };
        let most = match name {
            "properties" => MAX_PROPERTIES,
            "patternProperties" => MAX_PATTERNS,
            _ => usize::MAX,
        };
        if entries.len() > most {
            return self.refused(format!("{name} has more than {most} members"));
        }
        self.inside(name, |walk| {
            entries
                .iter_mut()
                .try_for_each(|(key, each)| walk.inside(key, |walk| walk.schema(each, depth + 1)))
        })
    }

    fn list(&mut self, value: &mut Value, name: &str, depth: usize) -> Result<()> {
        let Some(entries) = value.as_array_mut() else {
            return self.refused(format!("{name} must be a list of schemas"));
        };
        self.inside(name, |walk| {
            entries.iter_mut().try_for_each(|each| walk.schema(each, depth + 1))
        })
    }

    fn count_constants(&mut self, name: &str, value: &mut Value) -> Result<()> {
        if name == "required" && value.as_array().is_some_and(|names| names.len() > MAX_PROPERTIES)
        {
            return self.refused(format!("required has more than {MAX_PROPERTIES} names"));
        }
        if name == "enum" {
            self.num_constants += value.as_array().map_or(0, Vec::len);
            if value.as_array().is_some_and(Vec::is_empty) {
                return self.refused("enum is empty");
            }
        }
        if self.num_constants > MAX_ENUM {
            return self.refused(format!("all enums together have more than {MAX_ENUM} values"));
        }
        let is_literal = name == "enum" || name == "const";
        if is_literal && has_inexact(value) || !bring_in(name, value) {
            return self
                .refused(format!("{name} has a number beyond 2^53, which is not kept exactly"));
        }
        Ok(())
    }

    fn check_reference(&mut self, object: &Map<String, Value>) -> Result<()> {
        let Some(reference) = object.get("$ref") else { return Ok(()) };
        match reference.as_str() {
            Some(text) if text.starts_with('#') => Ok(()),
            Some(_) => self.refused("$ref must point into the schema itself (#/...)"),
            None => self.refused("$ref must be a string"),
        }
    }

    /// Members are counted as they are written, and one that `required` does not name may have a name that was
    /// written before, itself or by escapes. So what is surely there are the required ones, each of which comes
    /// once, and where there are none, one. Objects of declared members alone repeat none: what the library
    /// cannot count of these it refuses itself.
    fn check_min_properties(&self, object: &Map<String, Value>) -> Result<()> {
        let least = object.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
        if least <= num_sure(object) || !has_open_names(object) || !may_be(object, "object") {
            return Ok(());
        }
        self.refused(format!(
            "minProperties {least} would count a name that is written twice as two: where other names may come \
             it is at most the number of required names, or 1; name more in required, or allow no others \
             (additionalProperties false and no patternProperties)"
        ))
    }

    /// `format` speaks of strings only; of other types it says nothing.
    fn check_format(&mut self, object: &mut Map<String, Value>) -> Result<()> {
        let Some(format) = object.get("format") else { return Ok(()) };
        if !may_be(object, "string") {
            object.remove("format");
            return Ok(());
        }
        match format.as_str() {
            Some(name) if FORMATS.contains(&name) => Ok(()),
            Some(name) => {
                let shown: String = name.chars().take(80).collect();
                self.refused(format!("the format {shown:?} is not enforced here"))
            }
            None => self.refused("format must be a string"),
        }
    }
}

fn may_be(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|each| each == kind),
        _ => true,
    }
}

/// Members of its objects that are there, of different names.
fn num_sure(schema: &Map<String, Value>) -> u64 {
    let required = schema.get("required").and_then(Value::as_array);
    let names: HashSet<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    names.len().max(1) as u64
}

/// Whether its objects may have members that `properties` and `required` do not name.
fn has_open_names(schema: &Map<String, Value>) -> bool {
    let patterns = schema.get("patternProperties").and_then(Value::as_object);
    patterns.is_some_and(|patterns| !patterns.is_empty())
        || schema.get("additionalProperties") != Some(&Value::Bool(false))
}

/// Options of oneOf that are references become what they refer to: the library tells apart only what it
/// sees there. Not in the copies: types may refer to themselves. Only in schemas: const and enum are data.
fn inline_options(schema: &mut Value, root: &Value, num_copied: &mut usize) {
    for (name, value) in schema.as_object_mut().into_iter().flatten() {
        let schemas: Vec<&mut Value> = match (use_of(name), value) {
            (Some(Schema | Schemas), Value::Array(list)) => list.iter_mut().collect(),
            (Some(Schema), one) => vec![one],
            (Some(SchemaMap), Value::Object(entries)) => entries.values_mut().collect(),
            _ => continue,
        };
        for each in schemas {
            inline_options(each, root, num_copied);
            if name == "oneOf" {
                inline_option(each, root, num_copied);
            }
        }
    }
}

fn inline_option(option: &mut Value, root: &Value, num_copied: &mut usize) {
    let Some(reference) = option.get("$ref").and_then(Value::as_str) else { return };
    let is_plain = option.as_object().is_some_and(|members| members.len() == 1);
    let target = reference.strip_prefix('#').and_then(|path| root.pointer(path));
    let Some(target) = target.filter(|_| is_plain) else { return };
    *num_copied += num_values(target, MAX_COPIED, 0);
    if *num_copied <= MAX_COPIED {
        *option = target.clone();
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Documents are no deeper than serde_json reads them: 128.
fn num_values(value: &Value, most: usize, so_far: usize) -> usize {
    children(value).fold(so_far + 1, |sum, each| match sum > most {
        true => sum,
        false => num_values(each, most, sum),
    })
}

fn has_inexact(value: &Value) -> bool {
    is_beyond(value, MAX_EXACT) || children(value).any(has_inexact)
}

/// A bound that lies further out than numbers are exact comes in as far as they are: what is within is also within
/// what was asked for. False: one that would leave out numbers by coming in.
fn bring_in(name: &str, value: &mut Value) -> bool {
    let Some((_, outward)) = BOUNDS.iter().find(|(each, _)| *each == name) else { return true };
    if !is_beyond(value, MAX_BOUND) {
        return true;
    }
    let is_outer = value.as_f64().is_some_and(|number| number.signum() == *outward);
    if is_outer {
        *value = json!(*outward as i64 * MAX_BOUND as i64);
    }
    is_outer
}

/// Integers are compared as such: 2^53 + 1 as a double is 2^53. What was written with a point or an exponent
/// has been rounded already, so that one that is 2^53 now may have been above.
fn is_beyond(value: &Value, most: u64) -> bool {
    match value.as_i64().map(i64::unsigned_abs).or(value.as_u64()) {
        Some(integer) => integer > most,
        None => value.as_f64().is_some_and(|number| number.abs() >= most as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(schema: &str) -> String {
        prepare(schema).err().map(|error| error.message).unwrap_or_default()
    }

    #[test]
    fn numbers_are_kept_exactly_or_refused() {
        for (schema, name) in [
            (r#"{"const":9007199254740993}"#, "const"),
            (r#"{"enum":[1,-9007199254740993]}"#, "enum"),
            (r#"{"const":{"a":[18446744073709551615]}}"#, "const"),
            (r#"{"const":9007199254740993.0}"#, "const"), // rounded when it was read
            (r#"{"type":"integer","minimum":9007199254740993}"#, "minimum"),
            (r#"{"type":"integer","minimum":9007199254740992}"#, "minimum"),
            (r#"{"type":"integer","maximum":-18446744073709551616}"#, "maximum"),
            (r#"{"type":"number","minimum":1e300}"#, "minimum"),
            (r#"{"type":"integer","exclusiveMinimum":9007199254740992}"#, "exclusiveMinimum"),
            (r#"{"type":"integer","exclusiveMaximum":-9007199254740992}"#, "exclusiveMaximum"),
            (r#"{"type":"integer","multipleOf":9007199254740993}"#, "multipleOf"),
        ] {
            let reason = "has a number beyond 2^53, which is not kept exactly";
            assert_eq!(refusal(schema), format!("{name} {reason} (in the schema)"), "{schema}");
            let inside = format!(r#"{{"properties":{{"minimum":{schema}}}}}"#);
            assert_eq!(refusal(&inside), format!("{name} {reason} (in properties.minimum)"));
        }
        for schema in [
            r#"{"enum":[9007199254740992,-9007199254740992,0.5]}"#,
            r#"{"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991}"#,
            r#"{"type":"integer","exclusiveMinimum":-9007199254740991}"#,
            r#"{"type":"integer","minimum":0,"exclusiveMinimum":true}"#,
            r#"{"properties":{"minimum":{"type":"integer","default":9007199254740993}}}"#,
            r#"{"default":{"minimum":1e300},"examples":[{"const":1e300}],"x-maximum":1e300}"#,
        ] {
            assert_eq!(refusal(schema), "", "{schema}");
        }
    }

    #[test]
    fn bounds_further_out_than_numbers_are_exact_come_in() {
        const MOST: i64 = 9_007_199_254_740_991;
        for (schema, least, most) in [
            (r#"{"minimum":-9223372036854775808,"maximum":9223372036854775807}"#, -MOST, MOST),
            (r#"{"minimum":-1e300,"maximum":18446744073709551615}"#, -MOST, MOST),
            (r#"{"minimum":-9007199254740991,"maximum":9007199254740992}"#, -MOST, MOST),
            (r#"{"minimum":0,"maximum":18446744073709551616}"#, 0, MOST),
        ] {
            for names in [["minimum", "maximum"], ["exclusiveMinimum", "exclusiveMaximum"]] {
                let schema = schema.replace("minimum", names[0]).replace("maximum", names[1]);
                let prepared = prepare_value(serde_json::from_str(&schema).expect("is JSON"));
                let prepared = prepared.expect("is held to");
                assert_eq!(
                    (&prepared[names[0]], &prepared[names[1]]),
                    (&json!(least), &json!(most))
                );
            }
        }
    }

    #[test]
    fn references_are_inlined_in_schemas_alone() {
        let data = json!({ "oneOf": [{ "$ref": "#/$defs/q" }] });
        let defs = json!({ "q": { "type": "string" } });
        let inlined = json!({ "oneOf": [{ "type": "string" }] });
        for schema in [
            json!({ "const": data, "$defs": defs }),
            json!({ "enum": [[data], data], "$defs": defs }),
            json!({ "properties": { "oneOf": { "const": data } }, "$defs": defs }),
        ] {
            let mut prepared = prepare_value(schema.clone()).expect("is held to");
            prepared.as_object_mut().expect("an object").remove("x-guidance");
            assert_eq!(prepared, schema);
        }
        for (place, schema) in [
            ("", data.clone()),
            ("/properties/const", json!({ "properties": { "const": data, "enum": true } })),
            ("/properties/enum/items", json!({ "properties": { "enum": { "items": data } } })),
            ("/items/0", json!({ "items": [data], "additionalItems": false })),
            ("/anyOf/1/allOf/0", json!({ "anyOf": [true, { "allOf": [data] }] })),
            ("/$defs/p", json!({ "$defs": { "p": data } })),
        ] {
            let mut schema = schema;
            schema["$defs"]["q"] = defs["q"].clone();
            let prepared = prepare_value(schema).expect("is held to");
            let found = prepared.pointer(place).and_then(|found| found.get("oneOf"));
            assert_eq!(found, inlined.get("oneOf"), "{place}");
        }
    }

    #[test]
    fn names_that_may_repeat_are_not_counted() {
        for schema in [
            r#"{"patternProperties":{"^a":true},"additionalProperties":false,"minProperties":2}"#,
            r#"{"properties":{"p":{"type":"object","minProperties":2}}}"#,
            r#"{"required":["a","a"],"additionalProperties":{"type":"null"},"minProperties":2}"#,
            r#"{"type":["object","null"],"required":["a","b"],"minProperties":3}"#,
        ] {
            let refused = refusal(schema);
            assert!(
                refused.starts_with("minProperties") && refused.contains("twice"),
                "{schema}: {refused}"
            );
        }
        for schema in [
            r#"{"type":"object","minProperties":1}"#,
            r#"{"patternProperties":{"^a":true},"additionalProperties":false,"minProperties":1}"#,
            r#"{"required":["a","b"],"additionalProperties":{"type":"null"},"minProperties":2}"#,
            r#"{"properties":{"a":true,"b":true},"additionalProperties":false,"minProperties":2}"#,
            r#"{"type":"array","minProperties":2}"#,
            r#"{"properties":{"minProperties":{"type":"integer"}},"default":{"minProperties":2}}"#,
        ] {
            assert_eq!(refusal(schema), "", "{schema}");
        }
    }
}
