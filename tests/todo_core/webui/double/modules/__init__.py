"""A thin double of the parts of AUTOMATIC1111's ``modules`` that the extension touches."""
