import azkaban.utils.Props;
import azkaban.utils.PropsUtils;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.commons.jexl2.JexlEngine;
import org.apache.commons.jexl2.MapContext;

/**
 * What servers make of a property's value: one a line in hexadecimal (UTF-16). Two lines answer
 * each: that of the server's own resolver, and that with 3.x's expressions evaluated besides.
 */
public class Evaluate {
  public static void main(String[] words) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String value = new String(HexFormat.of().parseHex(line), "UTF-16BE");
      for (boolean later : new boolean[] {false, true}) {
        String shown;
        try {
          // A job's properties are resolved several times before it starts.
          shown = prepared(prepared(prepared(value, later), later), later);
        } catch (RuntimeException error) {
          shown = "the job fails";
        }
        System.out.println(HexFormat.of().formatHex(shown.getBytes("UTF-16BE")));
      }
    }
  }

  private static String prepared(String value, boolean later) {
    Props props = new Props();
    props.put("given", value);
    props.put("next", "${given}");
    String resolved = PropsUtils.resolveProps(props).get("next");
    return later ? evaluated(resolved, resolved.length()) : resolved;
  }

  /** From the last expression to the first, each up to the bracket that closes it. */
  private static String evaluated(String text, int before) {
    int start = text.lastIndexOf("$(", before);
    if (start < 0) {
      return text;
    }
    int open = 1;
    int end = start + 2;
    while (open > 0) {
      open += text.charAt(end) == '(' ? 1 : text.charAt(end) == ')' ? -1 : 0;
      end++;
    }
    Object result =
        new JexlEngine().createExpression(text.substring(start + 2, end - 1)).evaluate(new MapContext());
    return result == null ? text : evaluated(text.substring(0, start) + result + text.substring(end), start);
  }
}
