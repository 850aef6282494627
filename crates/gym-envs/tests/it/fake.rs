//! A server that plays a script and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub cookies: String,
    pub body: String,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub set_cookies: Vec<String>,
    pub body: String,
}

impl Answer {
    pub fn ok(body: impl Into<String>) -> Self {
        Answer { status: 200, set_cookies: Vec::new(), body: body.into() }
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn cookie(mut self, cookie: &str) -> Self {
        self.set_cookies.push(cookie.to_owned());
        self
    }
}

type Script = dyn Fn(usize, &Request) -> Answer + Send + Sync;

/// The running server. Its tasks end with the runtime of the test.
#[derive(Clone)]
pub struct Fake {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Fake {
    /// Starts a server that answers its n-th request, from 0, with `script`.
    pub async fn start(script: impl Fn(usize, &Request) -> Answer + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let fake = Fake { address, seen: Arc::default() };
        let seen = fake.seen.clone();
        let script: Arc<Script> = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, script.clone(), seen.clone()));
            }
        });
        fake
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("no test panics while it holds this").clone()
    }
}

async fn serve(stream: TcpStream, script: Arc<Script>, seen: Arc<Mutex<Vec<Request>>>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let answer = {
            let mut seen = seen.lock().expect("no test panics while it holds this");
            seen.push(request.clone());
            script(seen.len() - 1, &request)
        };
        let mut text = format!(
            "HTTP/1.1 {} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            answer.status,
            answer.body.len()
        );
        for cookie in &answer.set_cookies {
            text.push_str(&format!("set-cookie: {cookie}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(&answer.body);
        if stream.get_mut().write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|&len| len > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut cookies) = (0, Vec::new());
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|&len| len > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "cookie" => cookies.push(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { path, cookies: cookies.join("; "), body: String::from_utf8(body).ok()? })
}
