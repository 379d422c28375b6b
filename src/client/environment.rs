//! Settings from variables of the environment, as a program in a container has them.

use std::ffi::OsString;

use serde::de::value::{Error as ReadError, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::base::error::{Error, ErrorKind, Result};

/// The groups of fields in a group: `LOCK_LEASE_TTL` is the field `ttl` of `lease` of `lock`.
fn groups(group: &str) -> &'static [&'static str] {
    match group {
        "" => &["client_certificate", "lock"],
        "lock" => &["lease", "min_replicas", "min_fsyncs"],
        _ => &[],
    }
}

/// A variable, or the variables of a group.
enum Node {
    Text { variable: String, text: String },
    Group(Vec<(String, Node)>),
}

/// Reads settings from the variables that begin with this prefix.
pub(super) fn read<T: DeserializeOwned>(
    prefix: &str,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<T> {
    if prefix.is_empty() {
        return Err(Error::config("prefix", "empty", "the beginning of variables, such as LOCKS_"));
    }
    let mut fields = Vec::new();
    for (variable, text) in variables {
        let Some(variable) = variable.to_str() else { continue };
        let Some(field) = variable.strip_prefix(prefix) else { continue };
        let Some(text) = text.to_str() else {
            return Err(Error::config(variable, "not readable", "text in UTF-8"));
        };
        let node = Node::Text { variable: variable.to_owned(), text: text.to_owned() };
        add(&mut fields, "", &field.to_ascii_lowercase(), node);
    }
    T::deserialize(Node::Group(fields)).map_err(|error| {
        Error::new(ErrorKind::Config, format!("invalid environment {prefix}…: {error}"))
    })
}

fn add(fields: &mut Vec<(String, Node)>, group: &str, field: &str, node: Node) {
    let within = |inner: &&&str| field.strip_prefix(**inner).is_some_and(|it| it.starts_with('_'));
    let Some(inner) = groups(group).iter().find(within) else {
        fields.push((field.to_owned(), node));
        return;
    };
    let rest = &field[inner.len() + 1..];
    let found = fields.iter_mut().find_map(|(name, node)| match node {
        Node::Group(fields) if name.as_str() == *inner => Some(fields),
        _ => None,
    });
    match found {
        Some(fields) => add(fields, inner, rest, node),
        None => {
            let mut of_group = Vec::new();
            add(&mut of_group, inner, rest, node);
            fields.push(((*inner).to_owned(), Node::Group(of_group)));
        }
    }
}

impl Node {
    /// The text, read in this way.
    fn parse<T>(
        self,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> std::result::Result<T, ReadError> {
        let Node::Text { variable, text } = self else {
            return Err(ReadError::custom(format_args!("expected {expected}")));
        };
        // Only numbers and switches are read here, and none of them is a secret.
        read(&text).ok_or_else(|| {
            let text = text.escape_debug();
            ReadError::custom(format_args!("{variable} is \"{text}\", expected {expected}"))
        })
    }
}

impl<'de> IntoDeserializer<'de, ReadError> for Node {
    type Deserializer = Node;

    fn into_deserializer(self) -> Node {
        self
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> std::result::Result<V::Value, ReadError> {
        match self {
            Node::Text { text, .. } => visitor.visit_string(text),
            Node::Group(fields) => visitor.visit_map(MapDeserializer::new(fields.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> std::result::Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> std::result::Result<V::Value, ReadError> {
        visitor.visit_bool(self.parse("true or false", |text| text.parse().ok())?)
    }

    fn deserialize_u32<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> std::result::Result<V::Value, ReadError> {
        visitor.visit_u32(self.parse("a number from 0", |text| text.parse().ok())?)
    }

    /// Texts with commas between them.
    fn deserialize_seq<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> std::result::Result<V::Value, ReadError> {
        match self {
            Node::Text { text, .. } => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                visitor.visit_seq(SeqDeserializer::new(parts.map(str::to_owned)))
            }
            group => group.deserialize_any(visitor),
        }
    }

    /// `a=b` with commas between them.
    fn deserialize_map<V: Visitor<'de>>(
        self,
        visitor: V,
    ) -> std::result::Result<V::Value, ReadError> {
        match self {
            Node::Text { text, .. } => {
                let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
                let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
                let pairs = pairs.map(|(from, to)| (from.to_owned(), to.to_owned()));
                visitor.visit_map(MapDeserializer::new(pairs))
            }
            group => group.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct tuple tuple_struct struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::option::{Lease, LockOptions, Wait};
    use crate::client::ClientSettings;

    fn from(variables: &[(&str, &str)]) -> Result<ClientSettings> {
        // Of other programs.
        let others = [("PATH", "/bin"), ("LOCKSMITH", "ann")];
        let pair = |(name, text): &(&str, &str)| (OsString::from(name), OsString::from(text));
        read("LOCKS_", variables.iter().chain(&others).map(pair))
    }

    #[test]
    fn variables_have_the_names_of_settings_in_capitals() {
        let settings = from(&[
            ("LOCKS_URL", "redis://localhost:6379/2"),
            ("LOCKS_COMMAND_TIMEOUT", "500ms"),
            ("LOCKS_MAX_SIZE", "3"),
            ("LOCKS_ANNOUNCE", "false"),
            ("LOCKS_NAME_PREFIX", "shop:"),
            ("LOCKS_MAP_ADDRESS", "a:1=b:2, c:3=d:4"),
            ("LOCKS_LOCK_LEASE_TTL", "10s"),
            ("LOCKS_LOCK_LEASE_RENEWED", "false"),
            ("LOCKS_LOCK_WAIT", "spin"),
            ("LOCKS_LOCK_MIN_REPLICAS_LEAST", "1"),
            ("LOCKS_LOCK_MIN_REPLICAS_WITHIN", "100ms"),
        ])
        .unwrap();
        let options = LockOptions::new()
            .lease(Lease::fixed(Duration::from_secs(10)))
            .wait(Wait::spin())
            .min_replicas(1, Duration::from_millis(100));
        assert_eq!(settings.lock_options().unwrap(), options);
        // A single server announces no address.
        let error = settings.builder().unwrap().build().unwrap_err().to_string();
        assert!(error.contains("map_address"), "{error}");
        let plain = [("LOCKS_URL", "redis://a"), ("LOCKS_NAME_PREFIX", "shop:")];
        let client = from(&plain).unwrap().builder().unwrap().build().unwrap();
        assert_eq!(client.mutex("x").unwrap().name(), b"shop:x");
        let nodes = [("LOCKS_URL", "redis://a"), ("LOCKS_CLUSTER", "redis://b, redis://c")];
        from(&nodes).unwrap().builder().unwrap().build().unwrap();
    }

    #[test]
    fn tail_of_a_lease_is_read_and_checked() {
        let lock = |variables: &[(&str, &str)]| from(variables).unwrap().lock_options();
        let (ttl, tail) = (("LOCKS_LOCK_LEASE_TTL", "3s"), "LOCKS_LOCK_LEASE_RECOVERABLE_FOR");
        let span = Duration::from_secs;
        let options =
            |tail| LockOptions::new().lease(Lease::renewed(span(3)).recoverable_for(tail));
        assert_eq!(lock(&[ttl, (tail, "27s")]).unwrap(), options(span(27)));
        assert_eq!(lock(&[ttl, (tail, "0s")]).unwrap(), options(Duration::ZERO));
        let error = lock(&[ttl, (tail, "soon")]).unwrap_err().to_string();
        assert!(error.contains("recoverable_for") && error.contains("\"soon\""), "{error}");
        // What is not allowed is said where the lock is made, as for a file.
        let fixed = lock(&[ttl, (tail, "27s"), ("LOCKS_LOCK_LEASE_RENEWED", "false")]).unwrap();
        assert!(fixed.check().unwrap_err().is_config());
    }

    #[test]
    fn mistake_in_a_variable_is_named_and_no_secret_is_shown() {
        for (name, text, parts) in [
            ("LOCKS_MAX_SZIE", "3", ["LOCKS_…", "max_szie"]),
            ("LOCKS_MAX_SIZE", "three", ["LOCKS_MAX_SIZE is \"three\"", "a number"]),
            ("LOCKS_ANNOUNCE", "yes", ["LOCKS_ANNOUNCE is \"yes\"", "true or false"]),
            ("LOCKS_LOCK_LINGRE", "1s", ["LOCKS_…", "lingre"]),
        ] {
            let error = from(&[(name, text)]).unwrap_err();
            assert!(error.is_config());
            let error = error.to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        for name in ["LOCKS_CLIENT_CERTIFICATE", "LOCKS_URL_", "LOCKS_SENTINELS_"] {
            let error = from(&[(name, "s3cret")]).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
        let unread: Result<ClientSettings> = read("", std::iter::empty());
        assert!(unread.unwrap_err().to_string().contains("prefix"));
        // What is missing is said when the client is built, as for a file.
        let error = from(&[]).unwrap().builder().unwrap().build().unwrap_err();
        assert!(error.to_string().contains("url"), "{error}");
    }
}
