"""What kfuzz does to a GPU below torch: its drivers, memory beside pages that fault."""
