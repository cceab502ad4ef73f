//! The script of a server: its cluster, and the answers to requests.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::frames;

/// The largest number of nodes.
pub const NODES_MAX: usize = 16;
/// The largest number of vbuckets.
pub const VBUCKETS_MAX: usize = 1024;
/// The largest number of answers that wait for a request.
pub const SCRIPT_ANSWERS_MAX: usize = 100_000;
/// The longest time after which an answer comes.
const AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The mechanism of tokens.
const OAUTHBEARER: &str = "OAUTHBEARER";

/// The script of a server.
#[derive(Clone, Debug)]
pub struct Script {
    pub(super) bucket: String,
    pub(super) users: BTreeMap<String, String>,
    pub(super) token: Option<String>,
    pub(super) mechanisms: Vec<String>,
    pub(super) nodes: usize,
    pub(super) vbuckets: usize,
    pub(super) replicas: usize,
    pub(super) collections: Option<BTreeMap<String, Vec<String>>>,
    pub(super) error_map: BTreeMap<u16, Vec<String>>,
    pub(super) intervals: BTreeMap<u16, Duration>,
    pub(super) answers: Vec<Answer>,
}

/// The mechanisms of users and passwords, all of which are offered by default.
const PASSWORD_MECHANISMS: [&str; 4] = ["SCRAM-SHA512", "SCRAM-SHA256", "SCRAM-SHA1", "PLAIN"];

impl Default for Script {
    fn default() -> Self {
        Script {
            bucket: "default".to_owned(),
            users: BTreeMap::new(),
            token: None,
            mechanisms: PASSWORD_MECHANISMS.map(str::to_owned).to_vec(),
            nodes: 1,
            vbuckets: 64,
            replicas: 0,
            collections: None,
            error_map: BTreeMap::new(),
            intervals: BTreeMap::new(),
            answers: Vec::new(),
        }
    }
}

impl Script {
    /// A server with one node and the bucket `default`, which serves every request.
    #[must_use]
    pub fn new() -> Self {
        Script::default()
    }

    /// The name of the bucket.
    #[must_use]
    pub fn bucket(mut self, name: impl Into<String>) -> Self {
        self.bucket = name.into();
        self
    }

    /// Adds a user; then clients have to authenticate.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.users.insert(name.into(), password.into());
        self
    }

    /// Accepts this token (a JWT) by OAUTHBEARER, which is then the only mechanism; clients have to
    /// authenticate.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self.mechanisms([OAUTHBEARER])
    }

    /// The offered SASL mechanisms.
    #[must_use]
    pub fn mechanisms<M: Into<String>>(mut self, names: impl IntoIterator<Item = M>) -> Self {
        self.mechanisms = names.into_iter().map(Into::into).collect();
        self
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// The number of vbuckets: a power of two.
    #[must_use]
    pub fn vbuckets(mut self, vbuckets: usize) -> Self {
        self.vbuckets = vbuckets;
        self
    }

    /// The number of replicas of each vbucket.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Adds a scope with its collections; then the server has collections.
    #[must_use]
    pub fn scope<C: Into<String>>(
        mut self,
        scope: impl Into<String>,
        collections: impl IntoIterator<Item = C>,
    ) -> Self {
        let collections = collections.into_iter().map(Into::into).collect();
        self.collections.get_or_insert_default().insert(scope.into(), collections);
        self
    }

    /// Adds a status with its attributes to the error map.
    #[must_use]
    pub fn error_map<A: Into<String>>(
        mut self,
        status: u16,
        attributes: impl IntoIterator<Item = A>,
    ) -> Self {
        self.error_map.insert(status, attributes.into_iter().map(Into::into).collect());
        self
    }

    /// Adds a constant retry interval to a status of the error map, which clients may use or not.
    #[must_use]
    pub fn retry_interval(mut self, status: u16, interval: Duration) -> Self {
        self.intervals.insert(status, interval);
        self
    }

    /// Adds answers.
    #[must_use]
    pub fn answers(mut self, answers: impl IntoIterator<Item = Answer>) -> Self {
        self.answers.extend(answers);
        self
    }

    /// Checks the script.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn check(&self) -> Result<(), InvalidScript> {
        let fail = |text: String| Err(InvalidScript(text));
        if !(1..=NODES_MAX).contains(&self.nodes) {
            return fail(format!("nodes: {}; expected 1 to {NODES_MAX}", self.nodes));
        }
        if !self.vbuckets.is_power_of_two() || self.vbuckets > VBUCKETS_MAX {
            let expected = format!("a power of two up to {VBUCKETS_MAX}");
            return fail(format!("vbuckets: {}; expected {expected}", self.vbuckets));
        }
        if self.replicas >= self.nodes {
            let expected = format!("less than the {} nodes", self.nodes);
            return fail(format!("replicas: {}; expected {expected}", self.replicas));
        }
        if self.answers.len() > SCRIPT_ANSWERS_MAX {
            return fail(format!("attempts: more than {SCRIPT_ANSWERS_MAX}"));
        }
        let is_known = |name: &str| PASSWORD_MECHANISMS.contains(&name) || name == OAUTHBEARER;
        if let Some(name) = self.mechanisms.iter().find(|name| !is_known(name)) {
            let known = PASSWORD_MECHANISMS.join(", ");
            let text = format!("mechanisms: {name:?}; expected {known} or {OAUTHBEARER}");
            return fail(text);
        }
        let problem = self.answers.iter().enumerate().find_map(|(index, answer)| {
            answer.problem().map(|problem| format!("attempts[{index}].{problem}"))
        });
        problem.map_or(Ok(()), fail)
    }
}

/// A script that cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidScript(String);

impl fmt::Display for InvalidScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidScript {}

/// What a request meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub(super) after: Duration,
    pub(super) command: Option<String>,
    pub(super) context: Option<String>,
    pub(super) action: AnswerAction,
}

/// What an answer does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerAction {
    /// Serves the request.
    Serve,
    /// Answers with a status and an empty body.
    Status(u16),
    /// Closes the connection instead of an answer. The request is not executed.
    Close,
    /// Executes the request, and closes the connection instead of an answer.
    ExecuteAndClose,
    /// Never answers.
    Hang,
    /// Answers another command.
    WrongCommand,
    /// Serves the request, but sends only so many bytes of the answer.
    Truncate(usize),
}

impl Answer {
    /// An answer with this action.
    #[must_use]
    pub const fn new(action: AnswerAction) -> Self {
        Answer { after: Duration::ZERO, command: None, context: None, action }
    }

    /// Serves the request.
    #[must_use]
    pub const fn serve() -> Self {
        Answer::new(AnswerAction::Serve)
    }

    /// Answers with a status.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Answer::new(AnswerAction::Status(status))
    }

    /// Closes the connection.
    #[must_use]
    pub const fn close() -> Self {
        Answer::new(AnswerAction::Close)
    }

    /// Never answers.
    #[must_use]
    pub const fn hang() -> Self {
        Answer::new(AnswerAction::Hang)
    }

    /// The answer comes this long after the request.
    #[must_use]
    pub const fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }

    /// The answer is for this command only.
    #[must_use]
    pub fn to(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }

    /// Explains the status with a text of the server: an extended error.
    #[must_use]
    pub fn context(mut self, text: impl Into<String>) -> Self {
        self.context = Some(text.into());
        self
    }

    fn problem(&self) -> Option<String> {
        if self.after > AFTER_MAX {
            return Some("after: expected at most a day".to_owned());
        }
        if self.context.is_some() && !matches!(self.action, AnswerAction::Status(_)) {
            return Some("context: it belongs to a status".to_owned());
        }
        let command = self.command.as_ref()?;
        let known = frames::COMMANDS.iter().any(|(_, name)| name == command);
        (!known).then(|| {
            let names: Vec<_> = frames::COMMANDS.iter().map(|(_, name)| *name).collect();
            format!("command: unknown command {command:?}; expected one of {}", names.join(", "))
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "expected a script: an object with \"attempts\"")]
struct ScriptText {
    #[allow(dead_code, reason = "a description for readers of the script")]
    about: Option<String>,
    bucket: Option<String>,
    #[serde(default)]
    users: BTreeMap<String, String>,
    token: Option<String>,
    mechanisms: Option<Vec<String>>,
    nodes: Option<usize>,
    vbuckets: Option<usize>,
    #[serde(default)]
    replicas: usize,
    collections: Option<BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    error_map: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    attempts: Vec<Answer>,
}

impl<'de> Deserialize<'de> for Script {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = ScriptText::deserialize(deserializer)?;
        let default = Script::default();
        let mut error_map = BTreeMap::new();
        for (status, attributes) in text.error_map {
            let number = u16::from_str_radix(&status, 16).map_err(|_| {
                let text = "expected a status of up to 4 hexadecimal digits, like \"7ff0\"";
                de::Error::custom(format!("error_map: {status:?}; {text}"))
            })?;
            error_map.insert(number, attributes);
        }
        let script = Script {
            bucket: text.bucket.unwrap_or(default.bucket),
            users: text.users,
            mechanisms: text.mechanisms.unwrap_or_else(|| match &text.token {
                Some(_) => vec![OAUTHBEARER.to_owned()],
                None => default.mechanisms,
            }),
            token: text.token,
            nodes: text.nodes.unwrap_or(default.nodes),
            vbuckets: text.vbuckets.unwrap_or(default.vbuckets),
            replicas: text.replicas,
            collections: text.collections,
            error_map,
            intervals: BTreeMap::new(),
            answers: text.attempts,
        };
        script.check().map_err(de::Error::custom)?;
        Ok(script)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerText {
    #[serde(default)]
    after: f64,
    command: Option<String>,
    context: Option<String>,
    status: Option<u16>,
    #[serde(default)]
    close: bool,
    #[serde(default)]
    execute_and_close: bool,
    #[serde(default)]
    hang: bool,
    #[serde(default)]
    serve: bool,
    #[serde(default)]
    wrong_command: bool,
    truncate: Option<usize>,
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = AnswerText::deserialize(deserializer)?;
        let choices = [
            text.status.map(AnswerAction::Status),
            text.close.then_some(AnswerAction::Close),
            text.execute_and_close.then_some(AnswerAction::ExecuteAndClose),
            text.hang.then_some(AnswerAction::Hang),
            text.serve.then_some(AnswerAction::Serve),
            text.wrong_command.then_some(AnswerAction::WrongCommand),
            text.truncate.map(AnswerAction::Truncate),
        ];
        let mut chosen = choices.into_iter().flatten();
        let (Some(action), None) = (chosen.next(), chosen.next()) else {
            let names = "status, close, execute_and_close, hang, serve, wrong_command, truncate";
            return Err(de::Error::custom(format!("an attempt has exactly one of {names}")));
        };
        let after = Duration::try_from_secs_f64(text.after / 1e3)
            .map_err(|_| de::Error::custom("after: expected milliseconds from 0 on"))?;
        Ok(Answer { after, command: text.command, context: text.context, action })
    }
}
