//! docs/the-morning-after.md: its commands do what it says.

use std::time::Duration;

use tempfile::TempDir;

use super::served::Scene;
use super::walkthrough::{Names, check, examples};

const PAGE: &str = include_str!("../../../../../docs/the-morning-after.md");
/// The number of dead letters that the incident makes.
const DEAD: usize = 23;

async fn until_dead(scene: &Scene) {
    let all_died = async {
        while scene.json(&["dead-letters", "list"]).await["data"].as_array().unwrap().len() < DEAD {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_died).await.expect("the incident does not happen");
}

#[tokio::test]
async fn the_commands_of_the_morning_after_do_what_the_page_says() {
    let scene = Scene::start().await;
    let directory = TempDir::new().unwrap();
    let mut names = Names::of(&scene);
    let examples = examples(PAGE);
    assert!(examples.len() > 12, "{}", examples.len());
    for (place, example) in examples.iter().enumerate() {
        check(&scene, directory.path(), &mut names, example).await;
        if place == 0 {
            until_dead(&scene).await;
        }
    }
    let left = scene.json(&["failure-groups", "list"]).await;
    assert_eq!(left["data"].as_array().map(Vec::len), Some(0), "{left}");
    // Twenty were sent three times, and three once.
    scene.sink.wait_for(63).await;
    assert_eq!(scene.sink.received(), 63);
}
