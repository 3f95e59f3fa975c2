"""What is run and shown by name: a cell of a table (task × world model), its evaluation, the demo."""
