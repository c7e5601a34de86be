//! The routes, as the declarations of the handlers say them: what is answered, who may ask, what is counted.
//!
//! `#[utoipa::path]` on a handler is the one declaration of a route. Its `security` names the roles that may call it.

use std::collections::HashMap;

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
    Optional,
    /// A key with one of these roles, and for all tenants if `all` is set.
    Key { roles: Vec<Role>, all: bool },
}

impl Access {
    /// Whether a key is always needed.
    pub const fn needs_key(&self) -> bool {
        matches!(self, Self::Key { .. })
    }

    /// Refuses a caller whose key has another role.
    pub fn check(&self, caller: &Caller) -> Result<()> {
        let Self::Key { roles, all } = self else { return Ok(()) };
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

    /// From the security requirements of an operation.
    fn of(security: &Value) -> Self {
        let requirements = security.as_array().map_or(&[][..], Vec::as_slice);
        let named = requirements.iter().find_map(|one| one.get(SCHEME));
        let is_optional =
            requirements.iter().any(|one| one.as_object().is_some_and(serde_json::Map::is_empty));
        let Some(names) = named.and_then(Value::as_array) else { return Self::Open };
        if is_optional {
            return Self::Optional;
        }
        let names = || names.iter().filter_map(Value::as_str);
        Self::Key {
            roles: names().filter_map(Role::from_name).collect(),
            all: names().any(|name| name == FOR_ALL),
        }
    }
}

fn role_of(caller: &Caller) -> String {
    match caller.role {
        Role::Tenant => "none".to_owned(),
        role => format!("the role {}", role.name()),
    }
}

/// All routes, found by the path that the router matched.
#[derive(Debug, Default)]
pub struct Routes {
    all: Vec<Route>,
    by_path: HashMap<String, Vec<usize>>,
}

impl Routes {
    /// Reads them from the description.
    pub(super) fn of(document: &Value) -> Self {
        let mut routes = Self::default();
        let paths = document["paths"].as_object().expect("a description has paths");
        for (path, operations) in paths {
            let operations = operations.as_object().expect("a path has operations");
            for (method, operation) in operations {
                let method = method.to_uppercase().parse().expect("the name of a method");
                routes.by_path.entry(path.clone()).or_default().push(routes.all.len());
                let access = Access::of(&operation["security"]);
                let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
                routes.all.push(Route { name, method, path: path.clone(), access });
            }
        }
        routes
    }

    pub fn all(&self) -> &[Route] {
        &self.all
    }

    /// The number of the route with this path, as it was declared. HEAD is answered as GET.
    pub fn find(&self, method: &Method, path: &str) -> Option<usize> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let at = self.by_path.get(path)?;
        at.iter().copied().find(|at| self.all[*at].method == method)
    }

    /// The methods of a path, for people and for `Allow`.
    pub(super) fn methods(&self, path: &str) -> String {
        let at = self.by_path.get(path).map_or(&[][..], Vec::as_slice);
        let mut names: Vec<&str> = at.iter().map(|at| self.all[*at].method.as_str()).collect();
        if names.contains(&"GET") {
            names.push("HEAD");
        }
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::role::Role::{Admin, Operator, Reader, Sender, Tenant};
    use serde_json::json;

    use super::*;

    #[test]
    fn access_is_what_the_security_of_an_operation_says() {
        let key = |roles: &[Role], all| Access::Key { roles: roles.to_vec(), all };
        for (security, wanted) in [
            (json!(null), Access::Open),
            (json!([]), Access::Open),
            (json!([{}, {"key": ["reader"]}]), Access::Optional),
            (json!([{"key": ["sender", "reader"]}]), key(&[Sender, Reader], false)),
            (json!([{"key": ["reader", "all"]}]), key(&[Reader], true)),
        ] {
            assert_eq!(Access::of(&security), wanted, "{security}");
        }
    }

    #[test]
    fn a_caller_needs_one_of_the_roles_and_a_key_for_all_where_it_is_said() {
        let caller = |role, tenant: Option<&str>| Caller {
            name: "x".to_owned(),
            tenant: tenant.map(|tenant| tenant.parse().unwrap()),
            key: None,
            role,
        };
        let operators = Access::Key { roles: vec![Operator], all: false };
        assert!(operators.check(&caller(Operator, Some("a"))).is_ok());
        assert!(operators.check(&caller(Tenant, Some("a"))).is_ok());
        let refused = operators.check(&caller(Reader, Some("a"))).unwrap_err();
        assert_eq!(refused.kind, Kind::Forbidden);
        assert!(refused.detail.contains("role operator") && refused.detail.contains("role reader"));
        let everything = Access::Key { roles: vec![Reader], all: true };
        assert!(everything.check(&caller(Reader, None)).is_ok());
        assert!(everything.check(&caller(Admin, Some("a"))).is_err());
    }

    #[test]
    fn a_route_is_found_by_its_method_and_path() {
        let routes = Routes::of(&json!({"paths": {"/a/{id}": {"get": {}, "put": {}}, "/b": {"post": {}}}}));
        let found =
            |method: &Method, path| routes.find(method, path).map(|at| routes.all()[at].method.clone());
        assert_eq!(found(&Method::HEAD, "/a/{id}"), Some(Method::GET));
        assert_eq!(found(&Method::PUT, "/a/{id}"), Some(Method::PUT));
        assert_eq!(found(&Method::GET, "/b"), None);
        assert_eq!(found(&Method::GET, "/c"), None);
        assert_eq!(
            (routes.methods("/a/{id}").as_str(), routes.methods("/b").as_str()),
            ("GET, PUT, HEAD", "POST")
        );
    }
}
