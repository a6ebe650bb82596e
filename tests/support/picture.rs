//! A picture of a terminal, as SVG: what a command really said, for the README.

/// The size of a character.
const WIDTH: usize = 8;
const HEIGHT: usize = 18;
/// The edge around all of them.
const EDGE: usize = 16;

/// The command, and under it what it said, on a dark ground that reads well on a light page and on a dark one.
pub fn terminal(command: &str, said: &str) -> String {
    let lines: Vec<String> =
        [format!("$ {command}")].into_iter().chain(said.lines().map(str::to_owned)).collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let (width, height) = (columns * WIDTH + 2 * EDGE, lines.len() * HEIGHT + 2 * EDGE);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"A terminal: {command}\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1b1f24\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"13\" fill=\"#d7dde4\" xml:space=\"preserve\">\n"
    );
    for (n, line) in lines.iter().enumerate() {
        let (y, length) = (EDGE + HEIGHT * (n + 1) - 5, line.chars().count() * WIDTH);
        let fill = if n == 0 { " fill=\"#7ee787\"" } else { "" };
        let text = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        if !line.is_empty() {
            svg += &format!("<text x=\"{EDGE}\" y=\"{y}\" textLength=\"{length}\"{fill}>{text}</text>\n");
        }
    }
    svg + "</g>\n</svg>\n"
}
