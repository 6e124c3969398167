"""The paper's evaluation on one machine: Pequod beside what people would use instead (`pequod bench compare`)."""
