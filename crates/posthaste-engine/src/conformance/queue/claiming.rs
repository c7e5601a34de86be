//! What a claim hands out: what is due, of the named buckets, within the quotas, to one node at a time.

use std::time::Duration;

use posthaste_core::flow::{Bucket, FlowId, Quota};
use posthaste_core::lease::{Fence, Lease};
use posthaste_core::notification::{Notification, Priority};
use posthaste_core::state::{Lane, State};

use crate::conformance::scene::{MONTH, Scene, TICK, at, bucket, retry_at};
use crate::conformance::{Broken, Kept, Promise, list, same};
use crate::store::{Claimed, Progress};

pub(super) const PROMISES: &[Promise] = list![
    only_what_is_due_is_handed_out,
    the_longest_due_comes_first,
    no_more_is_handed_out_than_the_quota_says,
    quotas_are_served_in_their_order,
    a_flow_without_a_quota_is_left_alone,
    lanes_and_priorities_are_told_apart,
    nothing_is_handed_out_twice,
    claims_at_the_same_time_share_nothing,
    a_job_says_everything_about_its_row,
];

impl Scene {
    /// Notifications of one flow, each due so many seconds after the start.
    async fn flow_with(&mut self, dues: &[i64]) -> Result<(FlowId, Vec<Notification>), Broken> {
        let first = self.draft();
        let mut all = vec![];
        for due in dues {
            let notification = Notification { destination: first.destination.clone(), ..self.draft() };
            self.accept(&notification, at(*due), None).await?;
            all.push(notification);
        }
        Ok((self.flow_of(&first).await?, all))
    }
}

const fn quota(bucket: Bucket, limit: u32) -> Quota {
    Quota { bucket, limit }
}

fn names(batch: &[Claimed]) -> Vec<String> {
    batch.iter().map(|claimed| claimed.notification.to.clone()).collect()
}

fn wanted(notifications: &[&Notification]) -> Vec<String> {
    notifications.iter().map(|notification| notification.to.clone()).collect()
}

async fn only_what_is_due_is_handed_out(mut scene: Scene) -> Kept {
    let (flow, all) = scene.flow_with(&[10, 20, 30]).await?;
    let lease = scene.lease().await?;
    let quotas = || vec![quota(bucket(flow, Lane::Main), 10)];
    let early = scene.store.claim(quotas(), lease, at(10).earlier(TICK)).await?.claimed;
    same("before anything is due", names(&early), wanted(&[]))?;
    let due = scene.store.claim(quotas(), lease, at(20)).await?.claimed;
    same("at second 20", names(&due), wanted(&[&all[0], &all[1]]))?;
    same("what was handed out", scene.state(&all[1]).await?, State::Processing)?;
    same("what was not due", scene.state(&all[2]).await?, State::Pending)
}

async fn the_longest_due_comes_first(mut scene: Scene) -> Kept {
    let (flow, all) = scene.flow_with(&[30, 10, 20, 10]).await?;
    let lease = scene.lease().await?;
    let batch = scene.store.claim(vec![quota(bucket(flow, Lane::Main), 10)], lease, at(60)).await?.claimed;
    same("the batch", names(&batch), wanted(&[&all[1], &all[3], &all[2], &all[0]]))
}

async fn no_more_is_handed_out_than_the_quota_says(mut scene: Scene) -> Kept {
    let (flow, all) = scene.flow_with(&[3, 2, 1]).await?;
    let lease = scene.lease().await?;
    let claim =
        async |limit| scene.store.claim(vec![quota(bucket(flow, Lane::Main), limit)], lease, at(9)).await;
    same("a quota of 0", names(&claim(0).await?.claimed), wanted(&[]))?;
    same("a quota of 2", names(&claim(2).await?.claimed), wanted(&[&all[2], &all[1]]))?;
    same("the largest quota", names(&claim(u32::MAX).await?.claimed), wanted(&[&all[0]]))?;
    same("no quota", names(&scene.store.claim(vec![], lease, at(9)).await?.claimed), wanted(&[]))
}

async fn quotas_are_served_in_their_order(mut scene: Scene) -> Kept {
    let (one, of_one) = scene.flow_with(&[1, 2]).await?;
    let (two, of_two) = scene.flow_with(&[3, 4]).await?;
    let lease = scene.lease().await?;
    let (first, second) = (bucket(two, Lane::Main), bucket(one, Lane::Main));
    let quotas = vec![quota(first, 1), quota(second, 5), quota(first, 5), quota(second, 5)];
    let batch = scene.store.claim(quotas, lease, at(9)).await?.claimed;
    same("the batch", names(&batch), wanted(&[&of_two[0], &of_one[0], &of_one[1], &of_two[1]]))
}

async fn a_flow_without_a_quota_is_left_alone(mut scene: Scene) -> Kept {
    let (parked, of_parked) = scene.flow_with(&[1, 1, 1]).await?;
    let (free, of_free) = scene.flow_with(&[5]).await?;
    let lease = scene.lease().await?;
    let before = scene.all_of(of_parked[0].id).await?;
    let quotas = vec![quota(bucket(parked, Lane::Main), 0), quota(bucket(free, Lane::Main), 9)];
    same(
        "the batch",
        names(&scene.store.claim(quotas, lease, at(9)).await?.claimed),
        wanted(&[&of_free[0]]),
    )?;
    let after = scene.all_of(of_parked[0].id).await?;
    same("what is shown of the parked one", (after.0, after.1, after.2), (before.0, before.1, before.2))
}

async fn lanes_and_priorities_are_told_apart(mut scene: Scene) -> Kept {
    let lease = scene.lease().await?;
    let first = scene.draft();
    for priority in Priority::ALL {
        for lane in Lane::ALL {
            let destination = first.destination.clone();
            let notification = Notification { priority, destination, ..scene.draft() };
            let held = (lane == Lane::Retry).then_some(lease);
            scene.accept(&notification, at(0), held).await?;
            if lane == Lane::Retry {
                scene.fail(&notification, lease, retry_at(at(20))).await?;
            }
        }
    }
    let flow = scene.flow_of(&first).await?;
    for priority in Priority::ALL {
        for lane in Lane::ALL {
            let wanted = quota(Bucket { flow, lane, priority }, 10);
            let batch = scene.store.claim(vec![wanted], lease, at(60)).await?.claimed;
            same("how many", batch.len(), 1)?;
            same("the lane", batch[0].lane, lane)?;
            same("the priority", batch[0].notification.priority, priority)?;
        }
    }
    Ok(())
}

async fn nothing_is_handed_out_twice(mut scene: Scene) -> Kept {
    let (flow, _) = scene.flow_with(&[1, 1, 1]).await?;
    let lease = scene.lease().await?;
    let other = scene.store.join("other".to_owned(), MONTH, at(0)).await?.node;
    let theirs = Lease { node: other, fence: Fence(1) };
    let all = || vec![quota(bucket(flow, Lane::Main), 2)];
    same("the first two", scene.store.claim(all(), lease, at(9)).await?.claimed.len(), 2)?;
    same("what another node gets", scene.store.claim(all(), theirs, at(9)).await?.claimed.len(), 1)?;
    let again = scene.lease().await?;
    same("what is left for the same node", scene.store.claim(all(), again, at(9)).await?.claimed, [])?;
    same("what is left for another node", scene.store.claim(all(), theirs, at(9)).await?.claimed, [])
}

async fn claims_at_the_same_time_share_nothing(mut scene: Scene) -> Kept {
    let (flow, all) = scene.flow_with(&[1; 20]).await?;
    let leases = [scene.lease().await?, scene.lease().await?, scene.lease().await?, scene.lease().await?];
    let claim = |lease| scene.store.claim(vec![quota(bucket(flow, Lane::Main), 7)], lease, at(9));
    let (one, two, three, four) =
        tokio::join!(claim(leases[0]), claim(leases[1]), claim(leases[2]), claim(leases[3]));
    let mut handed_out =
        [one?, two?, three?, four?].iter().flat_map(|claimed| names(&claimed.claimed)).collect::<Vec<_>>();
    handed_out.sort();
    let mut each_once = wanted(&all.iter().collect::<Vec<_>>());
    each_once.sort();
    same("everything that was handed out", handed_out, each_once)
}

async fn a_job_says_everything_about_its_row(mut scene: Scene) -> Kept {
    let notification = scene.full_draft();
    scene.accept(&notification, at(3), None).await?;
    let lease = scene.lease().await?;
    let wanted = Claimed {
        notification: notification.clone().into(),
        flow: scene.flow_of(&notification).await?,
        lane: Lane::Main,
        due: at(3),
        progress: Progress::START,
        first_due: at(3),
        delay: Duration::ZERO,
        interruptions: 0,
        cancel_requested: false,
        lease,
    };
    let first = scene.claim(&notification, Lane::Main, lease, at(5)).await?;
    same("the first attempt", first, [wanted.clone()])?;
    scene.fail(&notification, lease, retry_at(at(60))).await?;
    let lease = scene.lease().await?;
    let wanted = Claimed {
        lane: Lane::Retry,
        due: at(60),
        progress: Progress { attempt: 2, ..Progress::START },
        delay: Duration::from_secs(55),
        lease,
        ..wanted
    };
    let retry = scene.claim(&notification, Lane::Retry, lease, at(70)).await?;
    same("the retry", retry, [wanted])
}
