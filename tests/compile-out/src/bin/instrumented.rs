//! Prints the results of the instrumented functions.

fn main() {
    compile_out::instrumented::start();
    let value = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(11);
    println!("{:?}", compile_out::run_all!(instrumented, value));
}
