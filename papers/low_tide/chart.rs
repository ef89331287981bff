//! Line charts as SVG that follow the reader's light or dark scheme.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

const WIDTH: u32 = 760;
const HEIGHT: u32 = 400;
const HEAD: u32 = 52;
const NAME_WIDTH: i32 = 7;
const COLOURS: [RGBColor; 4] = [
    RGBColor(0x2f, 0x6f, 0xd6),
    RGBColor(0xe0, 0x7b, 0x12),
    RGBColor(0x2e, 0x9b, 0x62),
    RGBColor(0xa8, 0x55, 0xc7),
];
const INK: RGBColor = RGBColor(0x22, 0x22, 0x23);
const GRID: RGBColor = RGBColor(0xd8, 0xd8, 0xd9);
/// Attributes are overruled by style, which is how one drawing serves both schemes.
const STYLE: &str = "<style>text{font-family:system-ui,sans-serif}\
@media (prefers-color-scheme:dark){\
[fill=\"#222223\"]{fill:#e6e6e6}[stroke=\"#222223\"]{stroke:#9a9a9a}[stroke=\"#D8D8D9\"]{stroke:#3a3a3a}}</style>";

/// A named run of points.
pub(crate) struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
    /// A thin curve is the model of the solid one before it, in the same colour.
    thin: bool,
}

impl Curve {
    pub(crate) fn solid(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, thin: false }
    }

    pub(crate) fn thin(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, thin: true }
    }
}

/// A chart, not drawn yet.
pub(crate) struct Chart {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) across: &'static str,
    pub(crate) up: &'static str,
    pub(crate) logarithmic: bool,
    pub(crate) curves: Vec<Curve>,
}

impl Chart {
    /// The drawing. Both axes begin at the smallest value, so that 1 is where nothing is written twice.
    pub(crate) fn draw(&self) -> Result<String, Box<dyn Error>> {
        let mut svg = String::new();
        {
            let whole = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            let (head, area) = whole.split_vertically(HEAD);
            self.draw_head(&head)?;
            let points = || self.curves.iter().flat_map(|curve| &curve.points);
            let (left, right) = ends(points().map(|point| point.0));
            let (low, high) = ends(points().map(|point| point.1));
            if self.logarithmic {
                self.draw_on(&area, left..right, (low / 1.2..high * 1.2).log_scale())?;
            } else {
                self.draw_on(&area, left..right, low.min(1.0)..high * 1.05)?;
            }
            whole.present().map_err(owned)?;
        }
        let start = svg.find('>').map_or(0, |end| end + 1);
        svg.insert_str(start, &format!("<title>{}</title>{STYLE}", self.title));
        svg.push('\n');
        Ok(svg)
    }

    fn draw_on<Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        across: Range<f64>,
        up: Y,
    ) -> Result<(), Box<dyn Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(64)
            .build_cartesian_2d(across, up)
            .map_err(owned)?;
        let label = |number: &f64| {
            let text = format!("{number:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(("sans-serif", 12).into_font().color(&INK))
            .x_desc(self.across)
            .y_desc(self.up)
            .x_label_formatter(&label)
            .y_label_formatter(&label)
            .draw()
            .map_err(owned)?;
        for (curve, colour) in self.curves.iter().zip(self.colours()) {
            let style = colour.stroke_width(if curve.thin { 1 } else { 2 });
            chart.draw_series(LineSeries::new(curve.points.iter().copied(), style)).map_err(owned)?;
        }
        Ok(())
    }

    /// The title, and under it the names of the solid curves in their colours.
    fn draw_head(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
        let title = ("sans-serif", 17).into_font().color(&INK);
        area.draw(&Text::new(self.title, (12, 6), title)).map_err(owned)?;
        let mut left = 12;
        for (curve, colour) in self.curves.iter().zip(self.colours()).filter(|(curve, _)| !curve.thin) {
            area.draw(&Rectangle::new([(left, 34), (left + 12, 44)], colour.filled())).map_err(owned)?;
            let name = ("sans-serif", 12).into_font().color(&INK);
            area.draw(&Text::new(curve.name.clone(), (left + 17, 33), name)).map_err(owned)?;
            left += 40 + i32::try_from(curve.name.chars().count()).unwrap_or(0) * NAME_WIDTH;
        }
        Ok(())
    }

    /// A colour for each curve; a thin one shares that of the solid one before it.
    fn colours(&self) -> impl Iterator<Item = RGBColor> + '_ {
        let mut solid = 0;
        self.curves.iter().map(move |curve| {
            solid += usize::from(!curve.thin);
            COLOURS.get((solid.max(1) - 1) % COLOURS.len()).copied().unwrap_or(INK)
        })
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), high.max(value)))
}

/// Errors of a drawing that borrows its string, freed from it.
fn owned(error: impl std::fmt::Display) -> Box<dyn Error> {
    error.to_string().into()
}
