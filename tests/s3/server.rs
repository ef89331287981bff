//! A server of our own that speaks as much S3 as a job needs, and answers `200 OK` with an error inside where it is told
//! to: what real servers do once the head of an answer is out.
//!
//! Owns: objects and uploads of one bucket, in memory. Does not own: signatures, which it does not look at. Ends with
//! the process; each connection carries one request.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lowtide::Store;
use object_store::aws::AmazonS3Builder;
use object_store::{BackoffConfig, RetryConfig};

const BUCKET: &str = "bucket";

/// How often a request is repeated by its sender.
pub(crate) const RETRIES: usize = 2;

/// Requests that are answered by an error inside of `200 OK`, by its code, and not carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    pub(crate) code: &'static str,
    pub(crate) completions: usize,
    pub(crate) deletes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) objects: BTreeMap<String, Vec<u8>>,
    /// Uploads in parts that were neither completed nor given up.
    pub(crate) uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    uploads_begun: usize,
    pub(crate) refusals: Refusals,
    /// Completions that were asked for, refused ones among them.
    pub(crate) completions: usize,
}

/// The running server; clones share the bucket.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    bucket: Arc<Mutex<Bucket>>,
    endpoint: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { bucket: Arc::default(), endpoint };
        let bucket = Arc::clone(&server.bucket);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let bucket = Arc::clone(&bucket);
                // A sender that hangs up is its own business.
                std::thread::spawn(move || drop(serve(stream, &bucket)));
            }
        });
        server
    }

    /// Its bucket as a store that repeats a request at once, [`RETRIES`] times.
    pub(crate) fn store(&self) -> Store {
        let (moment, limit) = (Duration::from_millis(1), Duration::from_secs(60));
        let backoff = BackoffConfig { init_backoff: moment, max_backoff: 2 * moment, base: 2.0 };
        let s3 = AmazonS3Builder::new()
            .with_endpoint(&self.endpoint)
            .with_allow_http(true)
            .with_bucket_name(BUCKET)
            .with_region("us-east-1")
            .with_access_key_id("test")
            .with_secret_access_key("test")
            .with_retry(RetryConfig { backoff, max_retries: RETRIES, retry_timeout: limit })
            .build()
            .unwrap();
        Store::new(Arc::new(s3), "").unwrap()
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Bucket) -> T) -> T {
        look(&mut self.bucket.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn refuse(&self, refusals: Refusals) {
        self.with(|bucket| bucket.refusals = refusals);
    }
}

struct Request {
    method: String,
    /// Without the bucket; empty for the bucket itself.
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn of(status: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn error(status: &'static str, code: &str) -> Self {
        Self::of(status, format!("<Error><Code>{code}</Code><Message>planned</Message></Error>"))
    }
}

fn serve(stream: TcpStream, bucket: &Mutex<Bucket>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let Some(request) = read(&mut reader)? else { return Ok(()) };
    let head_only = request.method == "HEAD";
    let Answer { status, headers, body } =
        bucket.lock().unwrap_or_else(PoisonError::into_inner).answer(&request);
    let mut head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let mut stream = reader.into_inner();
    stream.write_all(head.as_bytes())?;
    if !head_only {
        stream.write_all(&body)?;
    }
    stream.flush()
}

fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = path.trim_start_matches('/').trim_start_matches(BUCKET).trim_start_matches('/');
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        (name.to_owned(), decoded(value))
    };
    let query = query.split('&').filter(|text| !text.is_empty()).map(pair).collect();
    let (method, key) = (method.to_owned(), decoded(key));
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { method, key, query, headers, body }))
}

/// Text with `%2F` and the like as the characters they stand for.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        decoded.push(char::from(u8::from_str_radix(code, 16).unwrap()));
        decoded.push_str(rest);
    }
    decoded
}

impl Bucket {
    fn answer(&mut self, request: &Request) -> Answer {
        let upload = request.query.get("uploadId");
        match (request.method.as_str(), upload) {
            ("PUT", Some(upload)) => self.put_part(request, upload),
            ("PUT", None) => self.put(request),
            ("POST", Some(upload)) => self.complete(&request.key, upload),
            ("POST", None) if request.query.contains_key("uploads") => self.begin(),
            ("POST", None) => self.delete_all(&request.body),
            ("DELETE", Some(upload)) => {
                self.uploads.remove(upload);
                Answer::of("204 No Content", "")
            }
            ("GET", None) if request.query.contains_key("list-type") => self.list(request),
            ("GET" | "HEAD", None) => self.get(request),
            _ => Answer::error("501 Not Implemented", "NotImplemented"),
        }
    }

    fn put(&mut self, request: &Request) -> Answer {
        if request.headers.contains_key("if-none-match") && self.objects.contains_key(&request.key) {
            return Answer::error("412 Precondition Failed", "PreconditionFailed");
        }
        self.objects.insert(request.key.clone(), request.body.clone());
        Answer::of("200 OK", "").with("ETag", "\"put\"")
    }

    fn get(&self, request: &Request) -> Answer {
        let Some(bytes) = self.objects.get(&request.key) else {
            return Answer::error("404 Not Found", "NoSuchKey");
        };
        let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes="));
        let answer = match range.and_then(|range| range.split_once('-')) {
            None => Answer::of("200 OK", bytes.clone()),
            Some((first, last)) => {
                let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                let last = last.min(bytes.len() - 1);
                Answer::of("206 Partial Content", bytes.get(first..=last).unwrap_or_default())
                    .with("Content-Range", &format!("bytes {first}-{last}/{}", bytes.len()))
            }
        };
        answer.with("ETag", "\"put\"").with("Last-Modified", "Tue, 01 Jan 2030 00:00:00 GMT")
    }

    fn list(&self, request: &Request) -> Answer {
        let wanted = |name: &str| request.query.get(name).cloned().unwrap_or_default();
        let (prefix, after) = (wanted("prefix"), wanted("start-after"));
        let mut body = "<ListBucketResult>".to_owned();
        for (key, bytes) in self.objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key > after) {
            let size = bytes.len();
            let stamp = "<LastModified>2030-01-01T00:00:00.000Z</LastModified>";
            write!(body, "<Contents><Key>{key}</Key><Size>{size}</Size>{stamp}</Contents>").unwrap();
        }
        Answer::of("200 OK", body + "<IsTruncated>false</IsTruncated></ListBucketResult>")
    }

    fn begin(&mut self) -> Answer {
        self.uploads_begun += 1;
        let upload = format!("upload-{}", self.uploads_begun);
        let body = format!(
            "<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        );
        self.uploads.insert(upload, BTreeMap::new());
        Answer::of("200 OK", body)
    }

    fn put_part(&mut self, request: &Request, upload: &str) -> Answer {
        let number = request.query.get("partNumber").and_then(|number| number.parse().ok());
        match (self.uploads.get_mut(upload), number) {
            (Some(parts), Some(number)) => {
                parts.insert(number, request.body.clone());
                Answer::of("200 OK", "").with("ETag", "\"part\"")
            }
            _ => Answer::error("404 Not Found", "NoSuchUpload"),
        }
    }

    fn complete(&mut self, key: &str, upload: &str) -> Answer {
        self.completions += 1;
        if self.refusals.completions > 0 {
            self.refusals.completions -= 1;
            return Answer::error("200 OK", self.refusals.code);
        }
        let Some(parts) = self.uploads.remove(upload) else {
            return Answer::error("404 Not Found", "NoSuchUpload");
        };
        self.objects.insert(key.to_owned(), parts.into_values().flatten().collect());
        let tag = "<ETag>\"whole\"</ETag>";
        Answer::of("200 OK", format!("<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>"))
    }

    fn delete_all(&mut self, body: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(body);
        let mut answer = "<DeleteResult>".to_owned();
        for key in text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
            if self.refusals.deletes > 0 {
                self.refusals.deletes -= 1;
                let code = self.refusals.code;
                write!(answer, "<Error><Key>{key}</Key><Code>{code}</Code><Message>m</Message></Error>")
                    .unwrap();
            } else {
                self.objects.remove(key);
                write!(answer, "<Deleted><Key>{key}</Key></Deleted>").unwrap();
            }
        }
        Answer::of("200 OK", answer + "</DeleteResult>")
    }
}
