//! Tables of reserved times, and a comparison with a search among all of them.

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn at(seconds: u64) -> Timestamp {
    NOW.later(Duration::from_secs(seconds))
}

fn limits(per_tenant: u32, per_module: u32) -> InboundLimits {
    InboundLimits { per_tenant, per_module }
}

fn wanted(module: &str) -> Wanted {
    Wanted {
        tenant: "acme".parse().unwrap(),
        module: (!module.is_empty()).then(|| module.into()),
        expires_at: None,
    }
}

/// The seconds that so many notifications of a module get.
fn seconds(taken: &mut AllTaken, module: &str, count: usize, limits: InboundLimits, now: u64) -> Vec<u64> {
    let reserved = reserve(taken, &vec![wanted(module); count], limits, at(now));
    reserved.into_iter().map(|one| one.at.since(NOW).as_secs()).collect()
}

#[test]
fn the_nth_waits_a_minute_for_the_one_that_is_a_limit_before_it() {
    let (mut taken, only) = (AllTaken::new(), limits(3, 0));
    assert_eq!(seconds(&mut taken, "", 2, only, 0), [0, 0]);
    assert_eq!(seconds(&mut taken, "", 4, only, 10), [10, 60, 60, 70]);
    assert_eq!(seconds(&mut taken, "", 1, only, 100), [120]);
    assert_eq!(seconds(&mut taken, "", 3, only, 185), [185, 185, 185]);
    assert_eq!(seconds(&mut taken, "", 1, only, 185), [245]);
}

#[test]
fn a_module_waits_for_its_own_limit_and_leaves_the_others_what_is_left_of_the_tenants() {
    let (mut taken, both) = (AllTaken::new(), limits(5, 3));
    assert_eq!(seconds(&mut taken, "loud", 7, both, 0), [0, 0, 0, 60, 60, 60, 120]);
    assert_eq!(seconds(&mut taken, "quiet", 3, both, 1), [1, 1, 61], "the tenant has five in a minute");
    assert_eq!(seconds(&mut taken, "", 1, both, 2), [61], "without a module only the tenant counts");
}

#[test]
fn tenants_do_not_share_a_limit() {
    let mut taken = AllTaken::new();
    let other = Wanted { tenant: "globex".parse().unwrap(), ..wanted("m") };
    let all = [wanted("m"), other, wanted("m")];
    let reserved = reserve(&mut taken, &all, limits(1, 1), NOW);
    assert_eq!(reserved.iter().map(|one| one.is_deferred).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn what_would_expire_before_its_time_takes_none() {
    let (mut taken, one) = (AllTaken::new(), limits(1, 0));
    let expiring = |seconds| Wanted { expires_at: Some(at(seconds)), ..wanted("") };
    let all = [wanted(""), expiring(60), expiring(61), wanted("")];
    let reserved = reserve(&mut taken, &all, one, NOW);
    assert_eq!(reserved.iter().map(|one| one.at).collect::<Vec<_>>(), [at(0), at(60), at(60), at(120)]);
}

#[test]
fn allowances_tell_what_is_left_and_when_there_is_more() {
    let (mut taken, both) = (AllTaken::new(), limits(3, 2));
    let mut next = |module: &str, now| reserve(&mut taken, &[wanted(module)], both, at(now))[0].allowances;
    let left = |limit, left, more| Some(Allowance { limit, left, more_at: Some(at(more)) });
    assert_eq!(next("", 0), Allowances { tenant: left(3, 2, 60), module: None });
    let second = next("a", 10);
    assert_eq!(second, Allowances { tenant: left(3, 1, 60), module: left(2, 1, 70) });
    assert_eq!(second.more_at(), Some(at(60)));
    let third = next("a", 20);
    assert_eq!(third, Allowances { tenant: left(3, 0, 60), module: left(2, 0, 70) });
    assert_eq!(third.more_at(), Some(at(70)), "both have to be free");
    let tightest = third.tightest(second).tightest(Allowances::default());
    assert_eq!(tightest, third);
    let nothing = allowances(&AllTaken::new(), &wanted("a"), both, NOW);
    assert_eq!(nothing.tenant, Some(Allowance { limit: 3, left: 3, more_at: None }));
    assert_eq!(nothing.more_at(), None);
    assert_eq!(allowances(&AllTaken::new(), &wanted("a"), limits(0, 0), NOW), Allowances::default());
}

#[test]
fn a_limit_that_is_lowered_counts_what_was_taken_before() {
    let mut taken = AllTaken::new();
    assert_eq!(seconds(&mut taken, "", 4, limits(4, 0), 0), [0, 0, 0, 0]);
    assert_eq!(seconds(&mut taken, "", 1, limits(4, 0), 5), [60]);
    assert_eq!(seconds(&mut taken, "", 3, limits(2, 0), 6), [60, 120, 120]);
    assert_eq!(seconds(&mut taken, "", 2, limits(3, 0), 130), [130, 180]);
}

#[test]
fn a_node_whose_clock_is_behind_does_not_get_a_time_too_early() {
    let (mut taken, one) = (AllTaken::new(), limits(1, 0));
    assert_eq!(seconds(&mut taken, "", 1, one, 0), [0]);
    assert_eq!(seconds(&mut taken, "", 1, one, 60), [60]);
    let late = reserve(&mut taken, &[wanted("")], limits(2, 0), at(59));
    assert_eq!((late[0].at, late[0].is_deferred), (at(60), false));
}

#[test]
fn what_is_stored_is_read_back() {
    let mut taken = AllTaken::new();
    assert_eq!(Taken::from_text(&Taken::default().to_text()), Some(Taken::default()));
    seconds(&mut taken, "m", 30, limits(7, 3), 0);
    seconds(&mut taken, "n", 3, limits(7, 3), 17);
    for one in taken.values() {
        assert_eq!(Taken::from_text(&one.to_text()).as_ref(), Some(one));
        assert!(one.idle_from() > at(600));
    }
    for bad in ["", "{}", "[]", "[1,2]", "[1,2,0]", "[1,2,-3]", "[1,0,3]", "[1,2,3,4]", "[9223372036854775807,9,1]"] {
        assert_eq!(Taken::from_text(bad), None, "{bad}");
    }
}

/// Whether a time can be added without more than `limit` of them within some window.
fn fits(times: &[Timestamp], limit: u32, time: Timestamp) -> bool {
    let mut all: Vec<Timestamp> = times.iter().copied().chain([time]).collect();
    all.sort_unstable();
    all.iter().all(|begin| {
        let within = all.iter().filter(|one| *one >= begin && **one < begin.later(WINDOW)).count();
        within <= limit as usize
    })
}

/// The earliest time that fits, found among all times that could be it.
fn earliest(of: &[(&[Timestamp], u32)], now: Timestamp) -> Timestamp {
    let later = of.iter().flat_map(|(times, _)| times.iter()).map(|time| time.later(WINDOW));
    let mut candidates: Vec<Timestamp> = later.filter(|time| *time > now).chain([now]).collect();
    candidates.sort_unstable();
    let fitting =
        |time: &Timestamp| of.iter().all(|(times, limit)| *limit == 0 || fits(times, *limit, *time));
    candidates.into_iter().find(fitting).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_time_is_the_earliest_that_keeps_each_minute_within_its_limits(
        per_tenant in 0u32..6,
        per_module in 0u32..4,
        arrivals in prop::collection::vec((0u64..25_000, 0usize..4, any::<bool>()), 1..60),
    ) {
        let (mut taken, both) = (AllTaken::new(), limits(per_tenant, per_module));
        let mut all: Vec<Timestamp> = vec![];
        let mut of_module: BTreeMap<usize, Vec<Timestamp>> = BTreeMap::new();
        let mut now = NOW;
        for (wait, module, restarts) in arrivals {
            now = now.later(Duration::from_millis(wait));
            if restarts {
                let read = |one: &Taken| Taken::from_text(&one.to_text()).unwrap();
                taken = taken.iter().map(|(key, one)| (key.clone(), read(one))).collect();
            }
            let name = ["", "a", "b", "c"][module];
            let reserved = reserve(&mut taken, &[wanted(name)], both, now)[0];
            let theirs = of_module.entry(module).or_default();
            let module_limit = if name.is_empty() { 0 } else { per_module };
            prop_assert_eq!(reserved.at, earliest(&[(&all, per_tenant), (theirs, module_limit)], now));
            prop_assert_eq!(reserved.is_deferred, reserved.at > now);
            prop_assert!(theirs.last().is_none_or(|last| *last <= reserved.at), "order is kept within a module");
            all.push(reserved.at);
            theirs.push(reserved.at);
            for (key, one) in &taken {
                let limit = both.of(key).unwrap();
                prop_assert!(one.until.values().sum::<u64>() <= u64::from(limit), "no more than the limit is kept");
            }
        }
    }
}
