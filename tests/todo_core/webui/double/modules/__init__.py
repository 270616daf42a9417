"""A thin double of the parts of AUTOMATIC1111's ``modules`` that the extension touches.

What it claims about the WebUI is checked against the real one by tests/webui/api/test_double.py.
"""
