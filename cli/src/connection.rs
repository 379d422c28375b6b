//! How the command reaches Redis: the options that all subcommands have.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use leasehold::redis::{self, ConnectionAddr};
use leasehold::{Certificates, LockClient, LockClientBuilder};

use crate::duration::parse_duration;
use crate::failure::Failure;
use crate::url::{self, with_password};

/// How long an outage of Redis may last that the command rides out, as for a wait of the library.
pub(crate) const OUTAGE: Duration = Duration::from_secs(10);
/// Without an URL.
const DEFAULT_URL: &str = "redis://127.0.0.1:6379";
/// The variables that may have the URL; the first one that is set counts. They may have a password, so they are no option of
/// clap's: those may be shown.
const VARIABLES: [&str; 2] = ["LEASEHOLD_URL", "REDIS_URL"];
/// How long a connection attempt and each command may take without the option: a tenth of the usual lease, as the library
/// advises.
const TIME_OUT: Duration = Duration::from_secs(3);
/// A command of a job with a short lease has a tenth of that lease, but no less than this.
const LEAST_TIME_OUT: Duration = Duration::from_millis(500);
const TIME_OUTS_PER_LEASE: u32 = 10;

/// A URL, and where it was found. It may have a password.
pub(crate) struct FoundUrl {
    pub(crate) url: String,
    pub(crate) source: Source,
}

/// Where a URL was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// An option, or a file.
    Given,
    Variable(&'static str),
    Default,
}

// Without `Debug`: the URL may have a password.
#[derive(Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArguments {
    /// The server: redis://[USER[:PASSWORD]@]HOST[:PORT], rediss:// for TLS, or unix://PATH; default the variable
    /// LEASEHOLD_URL, then REDIS_URL, then redis://127.0.0.1:6379.
    ///
    /// All users of this machine can see a password that is given here. Put it in LEASEHOLD_URL or in a file, or use
    /// --ask-password.
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// A file whose first line is the URL; `-` is the standard input.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "url")]
    url_file: Option<PathBuf>,
    /// Ask for the password at the terminal, without showing it.
    #[arg(long, global = true)]
    ask_password: bool,
    /// A file whose first line is the password; the URL then has none, as in redis://USER@HOST.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "ask_password")]
    password_file: Option<PathBuf>,
    /// A sentinel; the host in --url is then the name of the master. Repeat it for each sentinel.
    #[arg(long = "sentinel", global = true, value_name = "URL", conflicts_with = "cluster")]
    sentinels: Vec<String>,
    /// The server is a node of a Redis Cluster.
    #[arg(long, global = true)]
    cluster: bool,
    /// Another node of the cluster, in case the first is down. Repeat it for each node.
    #[arg(long = "node", global = true, value_name = "URL", requires = "cluster")]
    nodes: Vec<String>,
    /// Connect to REACHED where sentinels or nodes announce ANNOUNCED, each a HOST:PORT, for example behind a NAT. Repeat it
    /// for each server.
    #[arg(long = "map-address", global = true, value_name = "ANNOUNCED=REACHED", value_parser = parse_mapping)]
    mappings: Vec<Mapping>,
    /// The CA certificates to trust, in PEM; default those of the machine. This file and those of
    /// `--cert` and `--key` are read again for each connection.
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The certificate of this client with its chain, in PEM.
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// How long a connection attempt and each command to the server may take; default 3s. For a command of `run` with a
    /// lease below 30s it is a tenth of the lease, but at least 500ms.
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// The largest difference between the clocks of servers that can take over each other's locks; default 500ms with
    /// sentinels and in a cluster, else 0s.
    ///
    /// Validity ends earlier by this much, or by a tenth of the lease if that is less. `doctor` compares the clocks
    /// with it.
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration)]
    max_clock_skew: Option<Duration>,
}

impl ConnectionArguments {
    /// A client that only looks: it announces nothing.
    pub(crate) fn open(&self) -> Result<LockClient, Failure> {
        Ok(self.builder()?.announce(false).build()?)
    }

    /// How long a connection attempt and each command may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIME_OUT)
    }

    /// How long each command may take for a lock with this lease.
    pub(crate) fn timeout_for(&self, lease: Duration) -> Duration {
        let usual = (lease / TIME_OUTS_PER_LEASE).clamp(LEAST_TIME_OUT, TIME_OUT);
        self.timeout.unwrap_or(usual)
    }

    /// What to add to the news that the server cannot be reached.
    pub(crate) fn hint(&self) -> &'static str {
        let is_given = self.url.is_some() || self.url_file.is_some();
        let variable = || from_variable(|name| std::env::var_os(name));
        match !is_given && variable().is_ok_and(|(_, source)| source == Source::Default) {
            true => {
                "; neither --url nor the variable LEASEHOLD_URL or REDIS_URL says where Redis is"
            }
            false => "",
        }
    }

    /// The settings of a client.
    pub(crate) fn builder(&self) -> Result<LockClientBuilder, Failure> {
        self.builder_for(&self.whole_url()?.url)
    }

    /// The same for a URL that was already read.
    pub(crate) fn builder_for(&self, url: &str) -> Result<LockClientBuilder, Failure> {
        let mut builder = self.equip(LockClient::builder(url))?;
        if let Some(skew) = self.max_clock_skew {
            builder = builder.max_clock_skew(skew);
        }
        if !self.sentinels.is_empty() {
            builder = builder.sentinels(&self.sentinels);
        }
        if self.cluster {
            builder = builder.cluster(&self.nodes);
        }
        if !self.mappings.is_empty() {
            let mappings = self.mappings.clone();
            builder = builder.map_address(move |host, port| reached(&mappings, host, port));
        }
        Ok(builder)
    }

    /// A client of another server that only looks, with the same user and the same certificates.
    pub(crate) fn open_beside(
        &self,
        url: &str,
        (host, port): (String, u16),
    ) -> Result<LockClient, Failure> {
        let (host, port) = reached(&self.mappings, &host, port);
        let wrong = |error: redis::RedisError| Failure::usage(error.to_string());
        let (info, is_secure) = url::read(url).map_err(wrong)?;
        let address = if is_secure {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let builder = self.equip(LockClient::builder_with_info(info.set_addr(address)))?;
        Ok(builder.announce(false).build()?)
    }

    /// The settings that do not depend on which servers there are.
    fn equip(&self, builder: LockClientBuilder) -> Result<LockClientBuilder, Failure> {
        let mut builder = builder.connect_timeout(self.timeout()).command_timeout(self.timeout());
        if self.ca.is_some() || self.cert.is_some() {
            let files = self.certificates();
            // A wrong path is a usage error. The content of a file may change while a job runs.
            files.read()?;
            builder = builder
                .certificates(move || files.read().map_err(|failure| failure.to_string().into()));
        }
        Ok(builder)
    }

    /// The value of `--max-clock-skew`, if it was given.
    pub(crate) fn max_clock_skew(&self) -> Option<Duration> {
        self.max_clock_skew
    }

    fn certificates(&self) -> CertificateFiles {
        let client = self.cert.clone().zip(self.key.clone());
        CertificateFiles { authority: self.ca.clone(), client }
    }

    pub(crate) fn has_sentinels(&self) -> bool {
        !self.sentinels.is_empty()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.cluster
    }

    /// The URL with its password. It can be read only once, because it may come from the standard input.
    pub(crate) fn whole_url(&self) -> Result<FoundUrl, Failure> {
        let (url, source) = match (&self.url, &self.url_file) {
            (Some(url), _) => (url.clone(), Source::Given),
            (None, Some(file)) => (first_line(file, "URL")?.trim().to_owned(), Source::Given),
            (None, None) => from_variable(|name| std::env::var_os(name))?,
        };
        let password = match &self.password_file {
            Some(file) => first_line(file, "password")?,
            None if self.ask_password => {
                rpassword::prompt_password("Password: ").map_err(|error| {
                    Failure::usage(format!(
                        "cannot ask for the password at a terminal ({error}): use --password-file"
                    ))
                })?
            }
            None => return Ok(FoundUrl { url, source }),
        };
        Ok(FoundUrl { url: with_password(&url, &password), source })
    }
}

/// The URL of the first variable that is set, or the usual one. An empty variable counts as not set.
fn from_variable(read: impl Fn(&str) -> Option<OsString>) -> Result<(String, Source), Failure> {
    for name in VARIABLES {
        let Some(value) = read(name).filter(|value| !value.is_empty()) else { continue };
        let url = value.into_string();
        let url = url.map_err(|_| Failure::usage(format!("the variable {name} is not UTF-8")))?;
        return Ok((url, Source::Variable(name)));
    }
    Ok((DEFAULT_URL.to_owned(), Source::Default))
}

/// The files that certificates come from.
struct CertificateFiles {
    authority: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
}

impl CertificateFiles {
    fn read(&self) -> Result<Certificates, Failure> {
        let mut certificates = Certificates::new();
        if let Some(authority) = &self.authority {
            certificates = certificates.ca_certificate(read_pem("--ca", authority)?);
        }
        if let Some((chain, key)) = &self.client {
            let (chain, key) = (read_pem("--cert", chain)?, read_pem("--key", key)?);
            certificates = certificates.client_certificate(chain, key);
        }
        Ok(certificates)
    }
}

/// An announced host and port, and those to connect to.
type Mapping = ((String, u16), (String, u16));

fn parse_mapping(text: &str) -> Result<Mapping, String> {
    let expected = || "expected HOST:PORT=HOST:PORT".to_owned();
    let address = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then_some((host.to_owned(), port.parse().ok()?))
    };
    let (announced, reached) = text.split_once('=').ok_or_else(expected)?;
    address(announced).zip(address(reached)).ok_or_else(expected)
}

fn reached(mappings: &[Mapping], host: &str, port: u16) -> (String, u16) {
    let mapping = mappings.iter().find(|((from, at), _)| from == host && *at == port);
    mapping.map_or_else(|| (host.to_owned(), port), |(_, to)| to.clone())
}

fn first_line(file: &Path, what: &str) -> Result<String, Failure> {
    let text = if file.as_os_str() == "-" { line_of_input()? } else { read(file)? };
    let text = String::from_utf8(text)
        .map_err(|_| Failure::usage(format!("{} is not UTF-8", file.display())))?;
    match text.lines().next() {
        Some(line) if !line.trim().is_empty() => Ok(line.to_owned()),
        _ => Err(Failure::usage(format!("the first line of {} has no {what}", file.display()))),
    }
}

/// The first line of the standard input, and no byte more: the rest is for the job.
#[cfg(unix)]
fn line_of_input() -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    // The usual reader has a buffer of its own.
    let mut input = std::fs::File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let (mut line, mut byte) = (Vec::new(), [0]);
    while input.read(&mut byte)? > 0 && byte != *b"\n" {
        line.extend(byte);
    }
    Ok(line)
}

#[cfg(not(unix))]
fn line_of_input() -> std::io::Result<Vec<u8>> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.into_bytes())
}

/// A file of certificates or keys. Another file is a usage error, and not a server that cannot be reached.
fn read_pem(option: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let text = read(file)?;
    match text.windows(BEGIN.len()).any(|part| part == BEGIN) {
        true => Ok(text),
        false => {
            Err(Failure::usage(format!("{option} {}: there is no PEM text in it", file.display())))
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_variable_that_is_set_has_the_url() {
        let found = |ours: &str, others: &str| {
            let read = |name: &str| match name {
                "LEASEHOLD_URL" => Some(ours.into()),
                "REDIS_URL" => Some(others.into()),
                _ => None,
            };
            from_variable(read).unwrap()
        };
        let is = |url: &str, source| (url.to_owned(), source);
        assert_eq!(
            found("redis://a", "redis://b"),
            is("redis://a", Source::Variable("LEASEHOLD_URL"))
        );
        assert_eq!(found("", "redis://b"), is("redis://b", Source::Variable("REDIS_URL")));
        assert_eq!(found("", ""), is(DEFAULT_URL, Source::Default));
    }

    #[test]
    fn mapping_is_two_addresses_and_others_stay() {
        let mappings = ["10.0.0.1:7000=localhost:17000", "[::1]:7001=a.example:1"];
        let mappings = mappings.map(|text| parse_mapping(text).unwrap());
        assert_eq!(reached(&mappings, "10.0.0.1", 7000), ("localhost".to_owned(), 17000));
        assert_eq!(reached(&mappings, "::1", 7001), ("a.example".to_owned(), 1));
        assert_eq!(reached(&mappings, "10.0.0.1", 7001), ("10.0.0.1".to_owned(), 7001));
        for odd in ["", "a:1", "a=b", "a:1=b", "a:1=b:70000", ":1=b:2"] {
            assert!(parse_mapping(odd).is_err(), "{odd}");
        }
    }
}
