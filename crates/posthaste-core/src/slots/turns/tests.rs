//! Turns alone: who is drawn next, whatever happens in between.

use super::*;
use proptest::prelude::*;

const BOTH: [bool; 2] = [true; 2];

fn tenant(number: i64) -> Tenant {
    format!("t{number}").parse().unwrap()
}

/// Each flow belongs to one of three tenants.
fn owner(bucket: Bucket) -> Tenant {
    tenant(bucket.flow.0 % 3)
}

fn bucket() -> impl Strategy<Value = Bucket> {
    (0i64..9, 0u8..2, 0u8..4).prop_map(|(flow, lane, priority)| Bucket {
        flow: FlowId(flow),
        lane: Lane::from_code(lane).unwrap(),
        priority: Priority::from_code(priority).unwrap(),
    })
}

#[derive(Debug, Clone)]
enum Step {
    Ready(Bucket),
    Draw([bool; 2]),
    Remove(Bucket),
    ParkDrawn,
    Unpark(FlowId),
    HoldBackDrawn,
    BringBack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => bucket().prop_map(Step::Ready),
        4 => any::<[bool; 2]>().prop_map(Step::Draw),
        1 => bucket().prop_map(Step::Remove),
        1 => Just(Step::ParkDrawn),
        1 => (0i64..9).prop_map(|flow| Step::Unpark(FlowId(flow))),
        1 => Just(Step::HoldBackDrawn),
        1 => Just(Step::BringBack),
    ]
}

proptest! {
    #[test]
    fn what_was_said_to_be_ready_is_known_until_it_is_removed(steps in prop::collection::vec(step(), 1..120)) {
        let mut turns = Turns::default();
        let mut known: BTreeSet<Bucket> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Ready(bucket) => {
                    prop_assert!(turns.ready(&owner(bucket), bucket));
                    known.insert(bucket);
                }
                Step::Draw(open) => {
                    if let Some((tenant, bucket)) = turns.draw(open) {
                        prop_assert!(known.contains(&bucket) && tenant == owner(bucket));
                        prop_assert!(open[bucket.lane as usize]);
                    }
                }
                Step::Remove(bucket) => {
                    // Only what is in line can be removed; what is parked waits for its flow.
                    if !turns.parked().any(|flow| flow == bucket.flow) {
                        turns.remove(bucket);
                        known.remove(&bucket);
                    }
                }
                Step::ParkDrawn => {
                    if let Some((tenant, bucket)) = turns.draw(BOTH) {
                        turns.park(tenant, bucket);
                    }
                }
                Step::Unpark(flow) => turns.unpark(flow),
                Step::HoldBackDrawn => {
                    if let Some((tenant, bucket)) = turns.draw(BOTH) {
                        turns.hold_back(tenant, bucket);
                    }
                }
                Step::BringBack => turns.bring_back(),
            }
            prop_assert_eq!(turns.count(), known.len());
            prop_assert!(known.iter().all(|bucket| turns.has_backlog(*bucket)));
        }
        // Whatever happened, everything that is known has a turn in the end.
        turns.bring_back();
        (0..9).for_each(|flow| turns.unpark(FlowId(flow)));
        let drawn: BTreeSet<Bucket> = (0..3 * 15 * 9).filter_map(|_| turns.draw(BOTH)).map(|(_, one)| one).collect();
        prop_assert_eq!(drawn, known);
    }

    #[test]
    fn tenants_with_work_get_the_same_number_of_turns_however_many_flows_they_have(
        flows in prop::collection::vec(1i64..40, 1..6), rounds in 1usize..20
    ) {
        let mut turns = Turns::default();
        for (number, count) in (0i64..).zip(&flows) {
            for flow in 0..*count {
                let bucket = Bucket {
                    flow: FlowId(number * 100 + flow),
                    lane: Lane::Main,
                    priority: Priority::Normal,
                };
                turns.ready(&tenant(number), bucket);
            }
        }
        let mut drawn: BTreeMap<Tenant, usize> = BTreeMap::new();
        for _ in 0..rounds * flows.len() {
            *drawn.entry(turns.draw(BOTH).unwrap().0).or_default() += 1;
        }
        prop_assert!(drawn.len() == flows.len() && drawn.values().all(|count| *count == rounds));
    }
}

#[test]
fn what_is_parked_takes_no_place_of_other_destinations() {
    let mut turns = Turns::default();
    let bucket = |flow| Bucket { flow: FlowId(flow), lane: Lane::Main, priority: Priority::Normal };
    let all = MOST_OF_TENANT as i64 + 2_000;
    for flow in 0..all {
        assert!(turns.ready(&tenant(1), bucket(flow)), "bucket {flow}");
        let (owner, drawn) = turns.draw(BOTH).unwrap();
        turns.park(owner, drawn);
    }
    assert!(turns.ready(&tenant(1), bucket(all)), "a healthy destination has its turn");
    assert_eq!(turns.draw(BOTH), Some((tenant(1), bucket(all))));
    assert!(!turns.is_left_out(&tenant(1)));
    (0..all).for_each(|flow| turns.unpark(FlowId(flow)));
    assert_eq!(turns.count(), all as usize + 1);
}
