//! Plots as SVG: panels one above the other, with one horizontal axis for all.
//!
//! A panel shows one quantity as steps, and its name stands at it in words, so that nothing depends on colour. The
//! picture brings its own light ground and can be read on a dark page as well. The same plot gives the same bytes.

use std::fmt::{self, Display, Write};

use axis::Axis;

mod axis;

/// The picture's width, the space left and right of the panels, and above the first, in pixels.
const WIDTH: f64 = 800.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 44.0;
/// A panel's name, the panel, and the space below the last one for the axis and its label.
const NAME: f64 = 26.0;
const PANEL: f64 = 84.0;
const BOTTOM: f64 = 54.0;
/// A line of the caption.
const LINE: f64 = 18.0;

const STYLE: &str = "text{font-family:system-ui,sans-serif;font-size:12px;fill:#222}\
    .title{font-size:16px;font-weight:600}.name{font-weight:600}.caption{fill:#555}\
    .grid{stroke:#ddd}.axis{stroke:#555}.data{fill:#0072b2;fill-opacity:.3;stroke:#0072b2;stroke-width:1.2}";

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// How it came about, line by line: the parameters and the seed.
    pub caption: Vec<String>,
    /// The horizontal quantity with its unit.
    pub horizontal: String,
    /// The vertical quantity with its unit.
    pub vertical: String,
    /// What one step is wide, in the unit of the horizontal quantity; above 0.
    pub step: f64,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// How the panels' heights compare.
    pub scale: Scale,
}

/// One quantity over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What it is, and what there is to say of it as a whole.
    pub name: String,
    /// One for each step, from 0 on; none below 0.
    pub values: Vec<f64>,
}

/// How the panels' heights compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// One scale for all.
    Common,
    /// Each panel has its own.
    Own,
}

/// As SVG 1.1.
impl Display for Plot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.panels.iter().map(|panel| panel.values.len()).max().unwrap_or(0).max(1);
        let horizontal = Axis::up_to(self.step * as_f64(steps), 8);
        let bottom = top_of(self.panels.len()) - NAME;
        let height = bottom + BOTTOM + LINE * as_f64(self.caption.len());
        writeln!(
            f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n<style>{STYLE}</style>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"#fff\"/>",
            escaped(&self.title),
            escaped(&self.description()),
        )?;
        text(f, (LEFT, 28.0), "class=\"title\"", &self.title)?;
        for (index, panel) in self.panels.iter().enumerate() {
            self.panel(f, panel, top_of(index), &horizontal)?;
        }
        for tick in horizontal.ticks() {
            let x = across(horizontal.share(tick));
            text(f, (x, bottom + 17.0), "text-anchor=\"middle\"", &horizontal.label(tick))?;
        }
        let middle = f64::midpoint(TOP, bottom);
        text(f, (across(0.5), bottom + 36.0), "text-anchor=\"middle\"", &self.horizontal)?;
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 20 {middle:.1})\"");
        text(f, (20.0, middle), &turned, &self.vertical)?;
        for (index, line) in self.caption.iter().enumerate() {
            text(f, (LEFT, bottom + BOTTOM + 4.0 + LINE * as_f64(index)), "class=\"caption\"", line)?;
        }
        f.write_str("</svg>\n")
    }
}

impl Plot {
    fn panel(&self, f: &mut fmt::Formatter<'_>, panel: &Panel, top: f64, horizontal: &Axis) -> fmt::Result {
        let highest = |panel: &Panel| panel.values.iter().copied().fold(0.0, f64::max);
        let most = match self.scale {
            Scale::Common => self.panels.iter().map(highest).fold(0.0, f64::max),
            Scale::Own => highest(panel),
        };
        let vertical = Axis::up_to(most, 2);
        let up = |share: f64| top + PANEL * (1.0 - share);
        text(f, (LEFT, top - 7.0), "class=\"name\"", &panel.name)?;
        for tick in vertical.ticks() {
            let (y, right) = (up(vertical.share(tick)), WIDTH - RIGHT);
            writeln!(f, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>")?;
            text(f, (LEFT - 6.0, y + 4.0), "text-anchor=\"end\"", &vertical.label(tick))?;
        }
        let mut steps = format!("M{LEFT} {:.1}", up(0.0));
        let mut current = String::new();
        for (index, value) in panel.values.iter().enumerate() {
            let height = format!("{:.1}", up(vertical.share(*value)));
            if height != current {
                let x = across(horizontal.share(self.step * as_f64(index)));
                write!(steps, "H{x:.1}V{height}")?;
                current = height;
            }
        }
        let end = across(horizontal.share(self.step * as_f64(panel.values.len())));
        writeln!(f, "<path class=\"data\" d=\"{steps}H{end:.1}V{:.1}Z\"/>", up(0.0))?;
        writeln!(f, "<path class=\"axis\" d=\"M{LEFT} {:.1}H{}\"/>", up(0.0), WIDTH - RIGHT)
    }

    /// In words, for who cannot see it.
    fn description(&self) -> String {
        let names: Vec<&str> = self.panels.iter().map(|panel| panel.name.as_str()).collect();
        let caption = self.caption.join(" ");
        format!("{} over {}. {}. {caption}", self.vertical, self.horizontal, names.join("; "))
    }
}

/// Where the panel of this index begins, its name apart.
fn top_of(index: usize) -> f64 {
    TOP + NAME + (PANEL + NAME) * as_f64(index)
}

/// Where a share of the horizontal axis lies.
fn across(share: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * share
}

fn text(f: &mut fmt::Formatter<'_>, (x, y): (f64, f64), attributes: &str, text: &str) -> fmt::Result {
    writeln!(f, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>", escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A number of panels, lines or steps.
fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(scale: Scale) -> String {
        let panel = |name: &str, values: &[f64]| Panel { name: name.to_owned(), values: values.to_vec() };
        let panels = vec![panel("few & fast", &[10.0, 0.0, 0.0, 5.0]), panel("many", &[100.0, 100.0])];
        Plot {
            title: "a < b".to_owned(),
            caption: vec!["seed 1".to_owned()],
            horizontal: "time, s".to_owned(),
            vertical: "calls per second".to_owned(),
            step: 0.5,
            panels,
            scale,
        }
        .to_string()
    }

    #[test]
    fn a_plot_is_drawn_as_steps_with_words_at_them() {
        insta::assert_snapshot!(plot(Scale::Common));
    }

    #[test]
    fn a_scale_of_its_own_makes_the_most_of_a_panel() {
        // 10 of 10 reach the top of the panel, and 10 of 100 a tenth of its height.
        assert!(plot(Scale::Own).contains("d=\"M84 154.0H84.0V70.0H"));
        assert!(plot(Scale::Common).contains("d=\"M84 154.0H84.0V145.6H"));
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        let nothing = Plot {
            title: String::new(),
            caption: Vec::new(),
            horizontal: String::new(),
            vertical: String::new(),
            step: 1.0,
            panels: Vec::new(),
            scale: Scale::Own,
        };
        assert!(nothing.to_string().ends_with("</svg>\n"));
    }
}
