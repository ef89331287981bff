//! The page of `lowtide compare --report` in a real browser: laid out, readable, in light and in dark.
//!
//! Chromium is asked for by `LOWTIDE_BROWSER` or found under its usual names; `scripts/deps.sh browser` installs it.
//! Without it nothing is rendered, and the test says so.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::{succeed, text};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// A browser that has not ended by then hangs. Seconds.
const PATIENCE: u32 = 300;

/// Looks at the page from inside, as a reader's eye would, and leaves what it finds in attributes of the root.
const PROBE: &str = r#"<script>
const root = document.documentElement, problems = [];
const numbers = text => (text.match(/[\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
const contrast = (a, b) => { const [low, high] = [light(a), light(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
const back = numbers(getComputedStyle(document.body).backgroundColor);
if (root.scrollWidth > innerWidth) problems.push(`the page is ${root.scrollWidth} wide in a window of ${innerWidth}`);
for (const svg of document.querySelectorAll('svg')) {
  const name = svg.closest('figure').id, box = svg.getBoundingClientRect();
  if (box.width < 250 || box.height < 110) problems.push(`${name} is only ${box.width} by ${box.height}`);
  const texts = [...svg.querySelectorAll('text')].filter(text => text.textContent.trim());
  if (texts.length < 5) problems.push(`${name} has ${texts.length} labels`);
  const boxes = texts.map(text => text.getBoundingClientRect());
  boxes.forEach((a, at) => {
    if (a.left < box.left - 1 || a.right > box.right + 1 || a.top < box.top - 1 || a.bottom > box.bottom + 1)
      problems.push(`${name}: "${texts[at].textContent}" is cut`);
    if (contrast(numbers(getComputedStyle(texts[at]).fill), back) < 4.5)
      problems.push(`${name}: "${texts[at].textContent}" can hardly be told from the page`);
    boxes.slice(at + 1).forEach((b, other) => {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && down > 3) problems.push(`${name}: "${texts[at].textContent}" lies on "${texts[at + 1 + other].textContent}"`);
    });
  });
  const drawn = svg.querySelectorAll('polyline').length + svg.querySelectorAll('rect').length;
  if (drawn < 3) problems.push(`${name} has hardly anything drawn in it`);
}
for (const cell of document.querySelectorAll('p, td, dd, h1, h2'))
  if (contrast(numbers(getComputedStyle(cell).color), back) < 4.5) problems.push(`"${cell.textContent.slice(0, 30)}" can hardly be read`);
root.dataset.charts = document.querySelectorAll('svg').length;
root.dataset.background = back.slice(0, 3).join(' ');
root.dataset.problems = problems.join(' | ');
</script>"#;

#[derive(Clone, Copy, Debug)]
enum Scheme {
    Light,
    Dark,
}

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("LOWTIDE_BROWSER") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let found =
        |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    BROWSERS.iter().copied().find_map(found)
}

/// Runs the browser on a page and returns what it prints.
fn show(browser: &Path, page: &Path, (scheme, size): (Scheme, &str), task: &str) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = profile.path().join("output");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ])
        .arg(format!("--user-data-dir={}", text(profile.path())))
        .arg(format!("--window-size={size}"))
        .arg(format!(
            "--blink-settings=preferredColorScheme={}",
            match scheme {
                Scheme::Dark => 0,
                Scheme::Light => 1,
            }
        ))
        .arg(task)
        .arg(format!("file://{}", text(page)))
        .stdout(fs::File::create(&output).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..PATIENCE * 10 {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "the browser exited with {status}");
            return fs::read_to_string(&output).unwrap();
        }
        sleep(Duration::from_millis(100));
    }
    child.kill().unwrap();
    panic!("the browser does not end");
}

fn attribute<'a>(document: &'a str, name: &str) -> &'a str {
    let start = document.find(&format!("data-{name}=\"")).map(|at| at + name.len() + 7);
    let rest = start.and_then(|start| document.get(start..)).expect("the page was not looked at");
    rest.split('"').next().unwrap()
}

fn report(directory: &Path) -> PathBuf {
    let backends = if cfg!(feature = "rocksdb") { "heap,heap-full,rocksdb" } else { "heap,heap-full" };
    let report = directory.join("report");
    succeed(&["compare", "--limit", "4000", "--backends", backends, "--report", text(&report)]);
    report.join("index.html")
}

#[test]
fn the_page_is_readable_in_a_browser_in_light_and_in_dark_wide_and_narrow() {
    let Some(browser) = browser() else {
        // Past the capture of the test harness, which would swallow it.
        let _ = writeln!(
            std::io::stderr(),
            "\nNOT RENDERED: there is no Chromium; the report page was not looked at. scripts/deps.sh browser installs it.\n"
        );
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let page = report(directory.path());
    let probed = directory.path().join("probed.html");
    fs::write(&probed, fs::read_to_string(&page).unwrap().replace("</body>", &format!("{PROBE}</body>")))
        .unwrap();
    let mut backgrounds = Vec::new();
    for scheme in [Scheme::Light, Scheme::Dark] {
        for size in ["1100,900", "500,900"] {
            let document = show(&browser, &probed, (scheme, size), "--dump-dom");
            assert_eq!(attribute(&document, "problems"), "", "{scheme:?}, {size}");
            assert_eq!(attribute(&document, "charts"), "6", "{scheme:?}, {size}");
            backgrounds.push(attribute(&document, "background").to_owned());
        }
    }
    let sum =
        |background: &str| background.split(' ').map(|number| number.parse::<u32>().unwrap()).sum::<u32>();
    assert!(sum(&backgrounds[0]) > 600 && sum(&backgrounds[2]) < 200, "{backgrounds:?}");
    // Left behind for whoever wants to see what was rendered.
    for (scheme, name) in [(Scheme::Light, "report-light.png"), (Scheme::Dark, "report-dark.png")] {
        let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        show(&browser, &page, (scheme, "1000,3400"), &format!("--screenshot={}", text(&picture)));
        assert!(fs::metadata(&picture).unwrap().len() > 20_000, "{} is empty", picture.display());
    }
}
