"""Layer 5: what people look at: tables, progress, reports."""
