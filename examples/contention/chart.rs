//! The chart: what each process had, and how long each thread waited.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Result;

const SIZE: (u32, u32) = (1120, 560);
/// Told apart by people who are colour-blind too.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
/// Room to the right of the lines, for their labels.
const MARGIN: u32 = 160;
/// How far apart labels are at least.
const GAP: i32 = 18;

/// What a chart says.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) panels: [Panel; 2],
    /// What one should read from it, in a line each.
    pub(crate) closing: Vec<String>,
}

/// Lines over the places 1, 2, 3…
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) across: &'static str,
    pub(crate) up: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// A line, and what stands at its end.
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) points: Vec<f64>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Chart {
    pub(crate) fn draw(&self, path: &Path) -> Result<()> {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let font = |size: i32| ("sans-serif", size).into_font();
        root.draw_text(&self.title, &font(20).into(), (24, 16))?;
        let (upper, lower) =
            root.split_vertically(SIZE.1 as i32 - 36 - 20 * self.closing.len() as i32);
        let areas = upper.margin(44, 0, 8, 8).split_evenly((1, 2));
        for (panel, area) in self.panels.iter().zip(&areas) {
            panel.draw(area)?;
        }
        for (place, line) in self.closing.iter().enumerate() {
            lower.draw_text(line, &font(15).into(), (24, 12 + 20 * place as i32))?;
        }
        root.present()?;
        Ok(())
    }
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let points = || self.lines.iter().flat_map(|line| &line.points).copied();
        let places = self.lines.iter().map(|line| line.points.len()).max().unwrap_or(1);
        let top = points().fold(0.0, f64::max) * 1.08;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 17))
            .margin(8)
            .margin_right(MARGIN)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(1.0..places as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_desc(self.across)
            .y_desc(self.up)
            .x_labels(places)
            .y_labels(6)
            .max_light_lines(0)
            .x_label_formatter(&|place| format!("{place}"))
            .y_label_formatter(&|value| format!("{value}"))
            .bold_line_style(BLACK.mix(0.15))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
        let mut ends = Vec::new();
        for (line, colour) in self.lines.iter().zip(COLOURS) {
            let points = || (1..).map(f64::from).zip(line.points.iter().copied());
            chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
            ends.push(points().last().map_or((0, 0), |end| chart.backend_coord(&end)));
        }
        let (left, top) = area.get_base_pixel();
        let heights: Vec<i32> = ends.iter().map(|end| end.1).collect();
        let lines = self.lines.iter().zip(COLOURS).zip(&ends).zip(spread(&heights, GAP));
        for (((line, colour), (right, _)), height) in lines {
            let style = ("sans-serif", 14).into_font().color(&colour);
            let style = style.pos(Pos::new(HPos::Left, VPos::Center));
            area.draw_text(&line.label, &style, (right - left + 10, height - top))?;
        }
        Ok(())
    }
}

/// Moves heights, which grow downwards, up until there is a gap between each two.
fn spread(heights: &[i32], gap: i32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by_key(|&place| std::cmp::Reverse(heights[place]));
    let (mut spread, mut lowest) = (heights.to_vec(), i32::MAX);
    for place in order {
        spread[place] = heights[place].min(lowest);
        lowest = spread[place] - gap;
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_would_overlap_move_apart() {
        assert_eq!(spread(&[100, 98, 20, 99], 10), [100, 80, 20, 90]);
        assert_eq!(spread(&[10, 50], 10), [10, 50]);
    }
}
