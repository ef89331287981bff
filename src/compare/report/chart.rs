//! One chart as SVG that follows the reader's light or dark scheme.

use std::collections::HashSet;
use std::error::Error;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::compare::units::grouped;

const WIDTH: u32 = 760;
const HEIGHT: u32 = 360;
/// Room for the title and the names of the curves.
const HEAD: u32 = 52;
/// Colours of the curves, told apart on white and on black.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x2f, 0x6f, 0xd6),
    RGBColor(0xe0, 0x7b, 0x12),
    RGBColor(0x2e, 0x9b, 0x62),
    RGBColor(0xa8, 0x55, 0xc7),
    RGBColor(0xd2, 0x4a, 0x4a),
    RGBColor(0x80, 0x80, 0x80),
];
/// Pixels that a character of a name takes, a little more than it needs.
const NAME_WIDTH: i32 = 7;
/// Text and axes; the style below turns it light in the dark.
const INK: RGBColor = RGBColor(0x22, 0x22, 0x23);
const GRID: RGBColor = RGBColor(0xd8, 0xd8, 0xd9);
/// Attributes are overruled by style, which is how one drawing serves both schemes.
const STYLE: &str = "<style>text{font-family:system-ui,sans-serif}\
@media (prefers-color-scheme:dark){\
[fill=\"#222223\"]{fill:#e6e6e6}[stroke=\"#222223\"]{stroke:#9a9a9a}[stroke=\"#D8D8D9\"]{stroke:#3a3a3a}}</style>";

/// How values are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero.
    Linear,
    /// By powers of ten; values below the smallest positive one are drawn there.
    Logarithmic,
    /// One bar a curve, from zero, its first value.
    Bars,
}

/// A named run of points.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart, not drawn yet.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// Name of its file, without ending.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// What the horizontal axis counts.
    pub(super) across: &'static str,
    /// Unit of the values.
    pub(super) up: &'static str,
    pub(super) scale: Scale,
    pub(super) curves: Vec<Curve>,
}

type Drawn = Result<(), Box<dyn Error + Send + Sync>>;

impl Chart {
    pub(super) fn file_name(&self) -> String {
        format!("{}.svg", self.name)
    }

    /// Draws the chart; a chart without points has axes only.
    pub(super) fn draw(&self) -> Result<String, Box<dyn Error + Send + Sync>> {
        let mut svg = String::new();
        {
            let whole = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            let (head, area) = whole.split_vertically(HEAD);
            self.draw_head(&head)?;
            let (low, high) = self.bounds();
            let width = self.width();
            match self.scale {
                Scale::Logarithmic => self.draw_on(&area, 0.0..width, (low..high).log_scale()),
                Scale::Linear | Scale::Bars => self.draw_on(&area, 0.0..width, 0.0..high),
            }?;
            whole.present().map_err(owned)?;
        }
        let mut svg = without_repeats(&svg);
        // The style goes first in the drawing, and a title for readers who do not see it.
        let start = svg.find('>').map_or(0, |end| end + 1);
        svg.insert_str(start, &format!("<title>{}</title>{STYLE}", self.title));
        Ok(svg)
    }

    fn width(&self) -> f64 {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        match self.scale {
            Scale::Bars => self.curves.len().max(1) as f64,
            _ => points.map(|(across, _)| *across).fold(1.0, f64::max),
        }
    }

    /// Smallest positive and largest value, a little apart.
    fn bounds(&self) -> (f64, f64) {
        let values = || self.curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| *value);
        let low = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let high = values().fold(0.0, f64::max);
        if low.is_finite() { (low / 1.3, high * 1.15) } else { (0.1, 1.0) }
    }

    fn draw_on<Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        across: std::ops::Range<f64>,
        up: Y,
    ) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(72)
            .build_cartesian_2d(across, up)
            .map_err(owned)?;
        let is_bars = self.scale == Scale::Bars;
        // Between powers of ten there is a line for each digit, too many to name.
        let is_labelled = |number: f64| {
            let digit = number / 10_f64.powf(number.log10().floor());
            self.scale != Scale::Logarithmic
                || [1.0, 2.0, 5.0].iter().any(|named| (digit - named).abs() < 1e-6)
        };
        let value_label = |number: &f64| if is_labelled(*number) { label(*number) } else { String::new() };
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(("sans-serif", 12).into_font().color(&INK))
            .x_desc(self.across)
            .y_desc(self.up)
            .x_label_formatter(&|number| format!("{number:.0}"))
            .y_label_formatter(&value_label);
        if is_bars {
            mesh.disable_x_mesh().x_labels(0);
        }
        mesh.draw().map_err(owned)?;
        for (index, curve) in self.curves.iter().enumerate() {
            let colour = colour(index);
            if is_bars {
                let (place, value) = (index as f64, curve.points.first().map_or(0.0, |(_, value)| *value));
                let bar = Rectangle::new([(place + 0.2, 0.0), (place + 0.8, value)], colour.filled());
                chart.draw_series([bar]).map_err(owned)?;
                let middle = Pos::new(HPos::Center, VPos::Bottom);
                let style = ("sans-serif", 12).into_font().color(&INK).pos(middle);
                let text = Text::new(label(value), (place + 0.5, value), style);
                chart.draw_series([text]).map_err(owned)?;
            } else {
                let floor = if self.scale == Scale::Logarithmic { self.bounds().0 } else { 0.0 };
                let points = curve.points.iter().map(|(across, value)| (*across, value.max(floor)));
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).map_err(owned)?;
            }
        }
        Ok(())
    }

    /// The title, and under it the names of the curves in their colours, where no curve can cover them.
    fn draw_head(&self, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn {
        let title = ("sans-serif", 17).into_font().color(&INK);
        area.draw(&Text::new(self.title, (12, 6), title)).map_err(owned)?;
        let mut left = 12;
        for (index, curve) in self.curves.iter().enumerate() {
            let patch = Rectangle::new([(left, 34), (left + 12, 44)], colour(index).filled());
            area.draw(&patch).map_err(owned)?;
            let name = ("sans-serif", 12).into_font().color(&INK);
            area.draw(&Text::new(curve.name.clone(), (left + 17, 33), name)).map_err(owned)?;
            left += 40 + i32::try_from(curve.name.chars().count()).unwrap_or(0) * NAME_WIDTH;
        }
        Ok(())
    }
}

/// Without texts that lie on the same text: an axis of powers of ten can name the end of one decade, which is the start of
/// the next, twice.
fn without_repeats(svg: &str) -> String {
    const END: &str = "</text>";
    let (mut kept, mut rest, mut seen) = (String::with_capacity(svg.len()), svg, HashSet::new());
    while let Some((before, from_text)) = rest.find("<text").map(|start| rest.split_at(start)) {
        let end = from_text.find(END).map_or(from_text.len(), |at| at + END.len());
        let (text, after) = from_text.split_at(end);
        kept.push_str(before);
        if seen.insert(text) {
            kept.push_str(text);
        }
        rest = after;
    }
    kept.push_str(rest);
    kept
}

fn colour(index: usize) -> RGBColor {
    COLOURS.get(index % COLOURS.len()).copied().unwrap_or(INK)
}

/// 2500000 as `2.5 M`, 0.25 as `0.25`: short enough for an axis.
fn label(number: f64) -> String {
    let (scaled, unit) = match number {
        number if number >= 999_500_000.0 => (number / 1e9, " G"),
        number if number >= 999_500.0 => (number / 1e6, " M"),
        number if number >= 10_000.0 => (number / 1e3, " k"),
        _ => (number, ""),
    };
    if scaled >= 1_000.0 {
        return grouped(scaled as u64);
    }
    let text = format!("{scaled:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Errors of a drawing that borrows its string, freed from it.
fn owned(error: impl std::fmt::Display) -> Box<dyn Error + Send + Sync> {
    error.to_string().into()
}
