//! The routes, as the declarations of the handlers say them: what is answered, who may ask, what is counted.
//!
//! `#[utoipa::path]` on a handler is the one declaration of a route. Its `security` names the roles that may
//! call it.

use http::Method;
use posthaste_core::role::Role;
use serde_json::Value;

use super::problem::{Kind, Problem, Result};
use crate::keys::Caller;

/// The name of the security scheme in the description.
pub const SCHEME: &str = "key";
/// Beside the roles of a route: only keys for all tenants may call it.
const FOR_ALL: &str = "all";

/// One address with one method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its `operationId`.
    pub name: String,
    pub method: Method,
    /// With `{..}` for what a request fills in.
    pub path: String,
    pub access: Access,
}

/// Who may call a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Anyone.
    Open,
    /// Anyone, unless the configuration asks for a key.
    Optional(Needed),
    /// The holder of such a key.
    Key(Needed),
}

/// What a key has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// It has one of these roles, or one that includes it.
    pub roles: Vec<Role>,
    /// It is for all tenants.
    pub all: bool,
}

impl Access {
    /// Whether a key is always needed.
    pub const fn needs_key(&self) -> bool {
        matches!(self, Self::Key(_))
    }

    /// From the security requirements of an operation.
    fn of(security: &Value) -> Self {
        let requirements = security.as_array().map_or(&[][..], Vec::as_slice);
        let named = requirements.iter().find_map(|one| one.get(SCHEME));
        let Some(names) = named.and_then(Value::as_array) else { return Self::Open };
        let names = || names.iter().filter_map(Value::as_str);
        let needed = Needed {
            roles: names().filter_map(Role::from_name).collect(),
            all: names().any(|name| name == FOR_ALL),
        };
        let is_empty = |one: &Value| one.as_object().is_some_and(serde_json::Map::is_empty);
        if requirements.iter().any(is_empty) { Self::Optional(needed) } else { Self::Key(needed) }
    }
}

impl Needed {
    /// Refuses a caller whose key has another role.
    pub fn check(&self, caller: &Caller) -> Result<()> {
        let Self { roles, all } = self;
        if !roles.iter().any(|needed| caller.role.includes(*needed)) {
            // A role that no key can be given by name says nothing to the caller.
            let named = roles.iter().filter(|role| Role::NAMED.contains(role)).map(|role| role.name());
            let needed = named.collect::<Vec<_>>().join(" or ");
            let detail = format!("this needs a key with the role {needed}; the key has {}", role_of(caller));
            return Err(Problem::new(Kind::Forbidden, detail));
        }
        if *all && caller.tenant.is_some() {
            return Err(Problem::new(Kind::Forbidden, "this needs a key for all tenants"));
        }
        Ok(())
    }
}

fn role_of(caller: &Caller) -> String {
    match caller.role {
        Role::Tenant => "none".to_owned(),
        role => format!("the role {}", role.name()),
    }
}

/// All routes, found by the path of a request.
pub struct Routes {
    all: Vec<Route>,
    /// The numbers of the routes of each path.
    by_path: matchit::Router<Vec<usize>>,
}

impl Routes {
    /// Reads them from the description.
    pub(super) fn of(document: &Value) -> Self {
        let (mut all, mut by_path) = (vec![], matchit::Router::new());
        for (path, operations) in document["paths"].as_object().expect("a description has paths") {
            let mut here = vec![];
            for (method, operation) in operations.as_object().expect("a path has operations") {
                here.push(all.len());
                all.push(Route {
                    name: operation["operationId"].as_str().unwrap_or_default().to_owned(),
                    method: method.to_uppercase().parse().expect("the name of a method"),
                    path: path.clone(),
                    access: Access::of(&operation["security"]),
                });
            }
            by_path.insert(path, here).expect("axum would refuse it too");
        }
        Self { all, by_path }
    }

    pub fn all(&self) -> &[Route] {
        &self.all
    }

    /// Who may call the operation of that name.
    pub(crate) fn access(&self, name: &str) -> Option<&Access> {
        self.all.iter().find(|route| route.name == name).map(|route| &route.access)
    }

    /// The number of the route of a request. HEAD is answered as GET.
    pub fn find(&self, method: &Method, path: &str) -> Option<usize> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.at(path).iter().copied().find(|at| self.all[*at].method == method)
    }

    /// The methods of a path, for people and for `Allow`.
    pub(super) fn methods(&self, path: &str) -> String {
        let mut names: Vec<&str> = self.at(path).iter().map(|at| self.all[*at].method.as_str()).collect();
        if names.contains(&"GET") {
            names.push("HEAD");
        }
        names.join(", ")
    }

    fn at(&self, path: &str) -> &[usize] {
        self.by_path.at(path).map_or(&[][..], |found| found.value.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::role::Role::{Admin, Operator, Reader, Sender, Tenant};
    use serde_json::json;

    use super::*;
    use crate::keys::Credential;

    #[test]
    fn access_is_what_the_security_of_an_operation_says() {
        let needed = |roles: &[Role], all| Needed { roles: roles.to_vec(), all };
        for (security, wanted) in [
            (json!(null), Access::Open),
            (json!([]), Access::Open),
            (json!([{}, {"key": ["reader"]}]), Access::Optional(needed(&[Reader], false))),
            (json!([{"key": ["sender", "reader"]}]), Access::Key(needed(&[Sender, Reader], false))),
            (json!([{"key": ["reader", "all"]}]), Access::Key(needed(&[Reader], true))),
        ] {
            assert_eq!(Access::of(&security), wanted, "{security}");
        }
    }

    #[test]
    fn a_caller_needs_one_of_the_roles_and_a_key_for_all_where_it_is_said() {
        let caller = |role, tenant: Option<&str>| Caller {
            name: "x".to_owned(),
            tenant: tenant.map(|tenant| tenant.parse().unwrap()),
            credential: Credential::Given,
            role,
        };
        let operators = Needed { roles: vec![Operator], all: false };
        assert!(operators.check(&caller(Operator, Some("a"))).is_ok());
        assert!(operators.check(&caller(Tenant, Some("a"))).is_ok());
        let refused = operators.check(&caller(Reader, Some("a"))).unwrap_err();
        assert_eq!(refused.kind, Kind::Forbidden);
        assert!(refused.detail.contains("role operator") && refused.detail.contains("role reader"));
        let everything = Needed { roles: vec![Reader], all: true };
        assert!(everything.check(&caller(Reader, None)).is_ok());
        assert!(everything.check(&caller(Admin, Some("a"))).is_err());
    }

    #[test]
    fn a_route_is_found_by_its_method_and_path() {
        let routes = Routes::of(&json!({"paths": {"/a/{id}": {"get": {}, "put": {}}, "/b": {"post": {}}}}));
        let found =
            |method: &Method, path| routes.find(method, path).map(|at| routes.all()[at].method.clone());
        assert_eq!(found(&Method::HEAD, "/a/x1"), Some(Method::GET));
        assert_eq!(found(&Method::PUT, "/a/x1"), Some(Method::PUT));
        assert_eq!(found(&Method::GET, "/b"), None);
        assert_eq!(found(&Method::GET, "/c"), None);
        assert_eq!(
            (routes.methods("/a/x1").as_str(), routes.methods("/b").as_str()),
            ("GET, PUT, HEAD", "POST")
        );
    }
}
