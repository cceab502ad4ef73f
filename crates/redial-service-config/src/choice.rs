//! Which service config of a list of choices is this client's (A2, "Canarying Changes").
//!
//! Rule: nothing here is random. Who the client is, its draw included, comes in, so that the same
//! client takes the same choice whenever it asks.

use crate::{ClientOptions, Problem, Problems, ServiceConfig, read};

/// What is written before a server's name to get the name of its TXT record (A2).
pub const RECORD_NAME_PREFIX: &str = "_grpc_config.";
/// What a TXT record begins with that has a list of choices (A2).
pub const RECORD_ATTRIBUTE: &str = "grpc_config=";
/// The name of our language in `clientLanguage`, in any case.
pub const CLIENT_LANGUAGE: &str = "rust";
/// The longest list in bytes: no record of DNS is longer (RFC 1035, 3.2.1: 16 bits for its length).
pub const CHOICES_TEXT_MAX: usize = 65_535;
/// The most choices of a list.
pub const CHOICES_MAX: usize = 1_000;

/// The largest draw.
const DRAW_MAX: u8 = 99;

/// Who a client is, as far as a list of choices asks; it takes the first choice whose conditions it
/// meets.
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
#[must_use = "a chooser does nothing until it is asked"]
pub struct ChoiceSelector {
    pub(crate) draw: u8,
    pub(crate) hostname: Option<Box<str>>,
    pub(crate) client: ClientOptions,
}

impl ChoiceSelector {
    /// A client with this draw, a number from 0 to 99; a larger one is 99. It meets every
    /// `percentage` above its draw: of clients that draw evenly, that many in a hundred.
    ///
    /// All choices of a list are compared with the same draw. A client that draws once in its life
    /// keeps its choice when it asks again, and one whose percentage is raised only gains clients.
    pub fn new(draw: u8) -> Self {
        ChoiceSelector {
            draw: draw.min(DRAW_MAX),
            hostname: None,
            client: ClientOptions::default(),
        }
    }

    /// The name of the machine, for `clientHostname`. Without it no choice for certain machines is
    /// met.
    pub fn hostname(mut self, name: impl Into<Box<str>>) -> Self {
        self.hostname = Some(name.into());
        self
    }

    /// The options of the client: they decide about warnings, never about problems.
    pub const fn client_options(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// Takes a choice from a list.
    ///
    /// # Errors
    /// Every problem of the list, and of the config that would be taken. What is wrong with a config
    /// that is not taken is a warning: a bad config for others is theirs.
    pub fn select(&self, list: &str) -> Result<SelectedChoice, Problems> {
        read::select(list, self)
    }

    /// Takes a choice from the list that is in one of these TXT records, each of which is given as
    /// its character-strings: they are joined. Records that do not begin with [`RECORD_ATTRIBUTE`] are not
    /// looked at; places are those of the text after it.
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
    /// As [`select`](Self::choose); and more than one of the records has a list: records have no
    /// order, so which one counts would be chance.
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

/// What a client takes from a list of choices.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SelectedChoice {
    /// The config; `None`: no choice is for this client, or there is no list.
    pub config: Option<ServiceConfig>,
    /// Which choice of the list it is of, from 0.
    pub index: Option<usize>,
    /// What is legal in the list and surely not meant, that of the config included, in the order of
    /// the text.
    pub warnings: Vec<Problem>,
}
