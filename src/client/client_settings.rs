//! The settings of a client as a file has them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::base::credentials::Credentials;
use crate::base::error::{Error, Result};
use crate::base::option::{LockOptions, Release, Wait};
use crate::base::serial::{LeaseForm, span};
use crate::client::{LockClient, LockClientBuilder, address_map, environment};
use crate::wire::endpoint::{GivenServer, shown};

/// The settings of a [`LockClient`] and the options of its locks, as a file in TOML, JSON or the like has them.
///
/// Each field has the name of a setter of [`LockClientBuilder`], and `lock` has those of [`LockOptions`]. A field that
/// is left out has the setter's default; only `url` is needed. An unknown field is an error. Times are written as
/// `500ms`, `10s` or `5m`, and `"never"` stands for `None`.
/// [Options](crate::guide::options#settings-from-a-file) lists the fields. [`from_env`](Self::from_env) reads the same
/// settings from the environment.
///
/// ```
/// use leasehold::ClientSettings;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = r#"{
///     "url": "redis://locks:s3cret@localhost:6379/2",
///     "command_timeout": "500ms",
///     "idle_timeout": "never",
///     "lock": { "lease": { "ttl": "10s" }, "max_hold": "5m" }
/// }"#;
/// let settings: ClientSettings = serde_json::from_str(file)?;
/// // The password is not shown.
/// assert!(!format!("{settings:?}").contains("s3cret"));
/// // Callbacks are set here.
/// let client = settings.builder()?.on_loss(|loss| eprintln!("{loss}")).build()?;
/// let lock = client.mutex_with("orders:42", settings.lock_options()?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientSettings {
    url: String,
    /// Of the password in the file.
    user: Option<String>,
    password_file: Option<String>,
    #[serde(deserialize_with = "urls")]
    sentinels: Option<Vec<String>>,
    #[serde(deserialize_with = "urls")]
    cluster: Option<Vec<String>>,
    /// From what is announced to what is connected to.
    map_address: Option<BTreeMap<String, String>>,
    connect_timeout: Option<String>,
    command_timeout: Option<String>,
    max_size: Option<u32>,
    min_idle: Option<u32>,
    max_idle: Option<u32>,
    max_wait: Option<String>,
    idle_timeout: Option<String>,
    max_lifetime: Option<String>,
    test_on_borrow: Option<bool>,
    give_up_after: Option<String>,
    slow_wait: Option<String>,
    max_clock_skew: Option<String>,
    announce: Option<bool>,
    connect_now: Option<bool>,
    reentrant_by_key: Option<bool>,
    name_prefix: Option<String>,
    label: Option<String>,
    #[cfg(feature = "tls")]
    ca_certificate: Option<String>,
    #[cfg(feature = "tls")]
    ca_file: Option<String>,
    #[cfg(feature = "tls")]
    #[serde(deserialize_with = "certificate")]
    client_certificate: Option<CertificateForm>,
    lock: LockForm,
}

#[cfg(feature = "tls")]
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateForm {
    chain: String,
    key: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LockForm {
    lease: LeaseForm,
    max_hold: Option<String>,
    max_renewals: Option<u32>,
    wait: Option<String>,
    release: Option<String>,
    local_handoffs: Option<u32>,
    linger: Option<String>,
    reentrant: Option<bool>,
    max_waiters: Option<u32>,
    min_replicas: Option<ReplicasForm>,
    min_fsyncs: Option<FsyncsForm>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplicasForm {
    least: u32,
    within: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FsyncsForm {
    local: bool,
    replicas: u32,
    within: String,
}

/// A list of URLs. A value of another form may be a URL with a password, so the error does not show it.
fn urls<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Vec<String>>, D::Error> {
    Option::deserialize(from).map_err(|_| D::Error::custom("expected a list of URLs"))
}

/// A certificate. A value of another form may have a private key, so the error does not show it.
#[cfg(feature = "tls")]
fn certificate<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<CertificateForm>, D::Error> {
    Option::deserialize(from)
        .map_err(|_| D::Error::custom("client_certificate: expected `chain` and `key`, two texts"))
}

/// A time, or `never`.
fn span_or_never(setting: &str, text: &str) -> Result<Option<Duration>> {
    if text == "never" { Ok(None) } else { span(setting, text).map(Some) }
}

/// Passes those fields to the setters of their names that are there, each read by the function before them.
macro_rules! set {
    ($form:expr, $target:ident, $(|$value:pat_param, $field:ident| $read:expr => $($name:ident),+;)+) => {
        $($(if let Some($value) = &$form.$name {
            let $field = stringify!($name);
            $target = $target.$name($read);
        })+)+
    };
}

impl ClientSettings {
    /// Reads the settings from the environment variables that begin with this prefix.
    ///
    /// The rest of a variable's name is the name of a field in capitals: with the prefix `LOCKS_`, the field `url` is
    /// `LOCKS_URL`, and the field `ttl` of the lease of `lock` is `LOCKS_LOCK_LEASE_TTL`. Items of a list have commas
    /// between them, and so have those of `map_address`, each as `ANNOUNCED=REACHED`.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for an empty prefix, for a variable of the prefix that is no setting, and for
    /// a value of another form. No error shows the text of a variable, but for a number or a switch.
    ///
    /// ```
    /// use leasehold::ClientSettings;
    ///
    /// # fn demo() -> leasehold::Result<()> {
    /// // LOCKS_URL=redis://localhost:6379 LOCKS_PASSWORD_FILE=/run/secrets/redis LOCKS_LOCK_LEASE_TTL=10s
    /// let settings = ClientSettings::from_env("LOCKS_")?;
    /// let client = settings.builder()?.build()?;
    /// let lock = client.mutex_with("orders:42", settings.lock_options()?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env(prefix: &str) -> Result<ClientSettings> {
        environment::read(prefix, std::env::vars_os())
    }

    /// A builder with these settings. It reads `ca_file`; `password_file` is read at each connection.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for an invalid time or address of `map_address`, for a `user`
    /// without `password_file`, and for a `ca_file` that cannot be read. Everything else is checked by
    /// [`build`](LockClientBuilder::build).
    ///
    /// ```
    /// use leasehold::ClientSettings;
    ///
    /// let file = r#"{ "url": "redis://localhost", "max_wait": "10 parsecs" }"#;
    /// let settings: ClientSettings = serde_json::from_str(file).unwrap();
    /// let error = settings.builder().unwrap_err();
    /// assert!(error.to_string().contains("max_wait"));
    /// ```
    pub fn builder(&self) -> Result<LockClientBuilder> {
        let mut builder = LockClient::builder(&self.url);
        set! { self, builder,
            |urls, _field| urls => sentinels, cluster;
            |text, field| span(field, text)? => connect_timeout, command_timeout, max_wait, give_up_after, max_clock_skew;
            |text, field| span_or_never(field, text)? => idle_timeout, max_lifetime, slow_wait;
            |value, _field| *value => max_size, min_idle, max_idle, test_on_borrow, announce, connect_now, reentrant_by_key;
            |text, _field| text => name_prefix, label;
        }
        if let Some(pairs) = &self.map_address {
            builder = builder.map_address(address_map::mapper(pairs)?);
        }
        match (&self.user, &self.password_file) {
            (user, Some(file)) => {
                let user = user.clone().unwrap_or_else(|| "default".to_owned());
                let file = file.clone();
                builder = builder.credentials(move || {
                    let text = std::fs::read_to_string(&file);
                    let text = text.map_err(|error| format!("{file}: {error}"))?;
                    Ok(Credentials::new(&user, text.lines().next().unwrap_or_default()))
                });
            }
            (Some(_), None) => {
                let allowed = "password_file with it, or both in the URL";
                return Err(Error::config("user", "alone", allowed));
            }
            (None, None) => {}
        }
        #[cfg(feature = "tls")]
        {
            set! { self, builder, |pem, _field| pem => ca_certificate; }
            if let Some(file) = &self.ca_file {
                if self.ca_certificate.is_some() {
                    return Err(Error::config("ca_file", "beside ca_certificate", "one of them"));
                }
                let pem = std::fs::read_to_string(file).map_err(|error| {
                    Error::config("ca_file", format_args!("{file}: {error}"), "a file in PEM")
                })?;
                builder = builder.ca_certificate(&pem);
            }
            if let Some(CertificateForm { chain, key }) = &self.client_certificate {
                builder = builder.client_certificate(chain, key);
            }
        }
        Ok(builder)
    }

    /// The options for locks.
    ///
    /// # Errors
    ///
    /// [`is_config`](crate::Error::is_config) for an invalid time, way to wait or way to release. Everything
    /// else is checked where the lock is made.
    ///
    /// ```
    /// use leasehold::{ClientSettings, LockOptions, Wait};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = r#"{ "url": "redis://localhost", "lock": { "wait": "spin" } }"#;
    /// let settings: ClientSettings = serde_json::from_str(file)?;
    /// assert_eq!(settings.lock_options()?, LockOptions::new().wait(Wait::spin()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_options(&self) -> Result<LockOptions> {
        let lock = &self.lock;
        let mut options = LockOptions::new().lease(lock.lease.lease()?);
        set! { lock, options,
            |text, field| span(field, text)? => max_hold, linger;
            |value, _field| *value => max_renewals, local_handoffs, reentrant, max_waiters;
            |text, _field| wait(text)? => wait;
            |text, _field| release(text)? => release;
        }
        if let Some(ReplicasForm { least, within }) = &lock.min_replicas {
            options = options.min_replicas(*least, span("time-out of min_replicas", within)?);
        }
        if let Some(FsyncsForm { local, replicas, within }) = &lock.min_fsyncs {
            let within = span("time-out of min_fsyncs", within)?;
            options = options.min_fsyncs(*local, *replicas, within);
        }
        Ok(options)
    }
}

fn wait(text: &str) -> Result<Wait> {
    match text {
        "queue" => Ok(Wait::queue()),
        "notify" => Ok(Wait::notify()),
        "spin" => Ok(Wait::spin()),
        _ => Err(unknown("wait", text, "queue, notify or spin")),
    }
}

fn release(text: &str) -> Result<Release> {
    match text {
        "lua" => Ok(Release::lua()),
        "watch" => Ok(Release::watch()),
        _ => Err(unknown("release", text, "lua or watch")),
    }
}

fn unknown(setting: &str, text: &str, allowed: &str) -> Error {
    Error::config(setting, format_args!("\"{}\"", text.escape_debug()), allowed)
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not derived: the URLs may have passwords, and the certificate has a key.
        let server = GivenServer::url(&self.url).endpoint().map(|server| shown(&server));
        let server = server.unwrap_or_else(|_| "not readable".to_owned());
        f.debug_struct("ClientSettings")
            .field("url", &server)
            .field("name_prefix", &self.name_prefix)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
