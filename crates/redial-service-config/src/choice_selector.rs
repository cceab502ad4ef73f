//! Selection of a client's service config from a list of choices (gRFC A2, "Canarying Changes").
//!
//! Invariant: the selection is deterministic. The caller supplies the client's identity and its random
//! draw, so a client that re-resolves selects the same choice again.

use crate::{ClientOptions, Problem, Problems, ServiceConfig, read};

/// The prefix of a server's name that makes the name of its TXT record (A2).
pub const RECORD_NAME_PREFIX: &str = "_grpc_config.";
/// The prefix of a TXT record that contains a list of choices (A2).
pub const RECORD_ATTRIBUTE: &str = "grpc_config=";
/// This client's language in `clientLanguage`; compared case-insensitively.
pub const CLIENT_LANGUAGE: &str = "rust";
/// The maximum length of a list in bytes: DNS limits records to this length (RFC 1035, 3.2.1).
pub const CHOICES_TEXT_MAX: usize = 65_535;
/// The maximum number of choices in a list.
pub const CHOICES_MAX: usize = 1_000;

/// The largest draw.
const DRAW_MAX: u8 = 99;

/// A client's identity for service config choices: language, hostname and a percentage draw. Selects
/// the first choice whose conditions all match.
///
/// ```
/// use redial_service_config::{ChoiceSelector, LoadBalancing};
///
/// let list = r#"[
///   { "clientLanguage": ["go", "Rust"], "percentage": 10,
///     "serviceConfig": { "loadBalancingPolicy": "round_robin" } },
///   { "serviceConfig": {} }
/// ]"#;
/// let policy = |draw: u8| {
///     let selected = ChoiceSelector::new(draw).select(list)?;
///     Ok::<_, redial_service_config::Problems>(selected.config.unwrap().load_balancing())
/// };
/// assert_eq!(policy(9)?, LoadBalancing::RoundRobin);
/// assert_eq!(policy(10)?, LoadBalancing::PickFirst);
/// # Ok::<(), redial_service_config::Problems>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a selector does nothing until `select` is called"]
pub struct ChoiceSelector {
    pub(crate) draw: u8,
    pub(crate) hostname: Option<Box<str>>,
    pub(crate) client: ClientOptions,
}

impl ChoiceSelector {
    /// A client with this draw, a number from 0 to 99; larger numbers count as 99. The client matches
    /// every `percentage` above its draw, so with uniform draws a choice matches that percentage of
    /// clients.
    ///
    /// All choices of a list are compared with the same draw. A client that keeps its draw keeps its
    /// choice when it re-resolves, and raising the percentage of a choice only adds clients to it.
    pub fn new(draw: u8) -> Self {
        ChoiceSelector {
            draw: draw.min(DRAW_MAX),
            hostname: None,
            client: ClientOptions::default(),
        }
    }

    /// The hostname for `clientHostname`. Without it, choices with that condition do not match.
    pub fn hostname(mut self, name: impl Into<Box<str>>) -> Self {
        self.hostname = Some(name.into());
        self
    }

    /// The client's options. They affect warnings only, never errors.
    pub const fn client_options(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// Selects a choice from a list.
    ///
    /// # Errors
    /// All problems of the list and of the selected config. Problems of other configs are warnings, so
    /// that a bad canary config affects only the clients it is for.
    pub fn select(&self, list: &str) -> Result<SelectedChoice, Problems> {
        read::select(list, self)
    }

    /// Selects a choice from the list in a set of TXT records. A record is given as its
    /// character-strings, which are joined. Records without the prefix [`RECORD_ATTRIBUTE`] are ignored;
    /// positions of problems count from the end of the prefix.
    ///
    /// ```
    /// use redial_service_config::ChoiceSelector;
    ///
    /// let spf = vec!["v=spf1 -all"];
    /// let config = vec!["grpc_config=[{\"serviceConfig\": {\"timeo", "ut\": 5}}]"];
    /// let selected = ChoiceSelector::new(0).select_from_records([spf, config])?;
    /// let [warning] = &*selected.warnings else { panic!() };
    /// assert_eq!((warning.column, &*warning.path), (21, "[0].serviceConfig.timeout"));
    /// # Ok::<(), redial_service_config::Problems>(())
    /// ```
    ///
    /// # Errors
    /// As [`select`](Self::select), and if more than one record has a list: DNS records are unordered,
    /// so the choice between them would be arbitrary.
    pub fn select_from_records<R>(
        &self,
        records: impl IntoIterator<Item = R>,
    ) -> Result<SelectedChoice, Problems>
    where
        R: IntoIterator<Item: AsRef<[u8]>>,
    {
        match read::records(records)? {
            Some(list) => self.select(&list),
            None => Ok(SelectedChoice::default()),
        }
    }
}

/// The result of selecting from a list of choices.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SelectedChoice {
    /// The config; `None` if no choice matches the client, or there is no list.
    pub config: Option<ServiceConfig>,
    /// The index of the selected choice in the list.
    pub index: Option<usize>,
    /// Likely mistakes in the list and in the selected config, in the order of the text.
    pub warnings: Vec<Problem>,
}
