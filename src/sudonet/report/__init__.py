"""What a person looks at: pictures of units and, later, tables and figures of runs."""

from sudonet.report._unit import draw_unit as draw_unit
